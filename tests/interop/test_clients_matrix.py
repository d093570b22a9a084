"""What any client writes, every client reads: all codecs, keys, headers, timestamps, partitions, big records."""

import itertools

import pytest
from tests.support.kafka_clients import CODECS, READERS, WRITERS, Seen, Sent
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka

from headrace.records.batch import Codec, iterate_batches

PARTITIONS = 3
HEADERS = (("trace", b"\x00\xff"), ("empty", b""), ("trace", b"again"))


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    with RawKafka(node.kafka) as client:
        client.create_topic(name, PARTITIONS, {"max.message.bytes": str(8 << 20)})
    return name


def records() -> list[Sent]:
    """Sixty small ones over all partitions, some without key or value, and some of a hundred kilobytes."""
    small = [
        Sent(
            None if number % 7 == 3 else b"value %d " % number * (number % 5),
            None if number % 4 == 0 and number % 7 != 3 else b"key %d" % number,
            HEADERS if number % 3 == 0 else (),
            1_700_000_000_000 + number * 1000,
            number % PARTITIONS,
        )
        for number in range(60)
    ]
    big = [Sent(bytes(range(256)) * 400, b"big", (), 1_700_000_100_000 + index, index) for index in range(PARTITIONS)]
    return small + big


def seen_by(reader: str, node: NodeProcess, topic: str, sent: list[Sent]) -> list[list[Seen]]:
    found = READERS[reader](node.kafka, topic, range(PARTITIONS), len(sent))
    return [[each for each in found if each.record.partition == index] for index in range(PARTITIONS)]


@pytest.mark.requirement("R3.1", "R4.9", "R4.10", "R4.56", "R4.57", "X4.1")
@pytest.mark.trap(5, 20, 21)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", list(WRITERS))
def test_every_client_reads_what_one_writes(node: NodeProcess, topic: str, writer: str, codec: str) -> None:
    sent = records()
    WRITERS[writer](node.kafka, topic, sent, codec)
    expected = [
        [Seen(offset, record) for offset, record in enumerate(each for each in sent if each.partition == index)]
        for index in range(PARTITIONS)
    ]
    for reader in READERS:
        assert seen_by(reader, node, topic, sent) == expected, reader
    with RawKafka(node.kafka) as client:
        stored = client.fetch(topic, 0, 0, max_bytes=1 << 22).records or b""
    codecs = {header.codec for header, _ in iterate_batches(stored)}
    # aiokafka leaves a batch alone that compression would not make smaller; nobody changes the codec asked for.
    assert codecs <= {Codec[codec.upper()], Codec.NONE}
    assert Codec[codec.upper()] in codecs


@pytest.mark.requirement("R4.39")
@pytest.mark.parametrize(("writer", "reader"), [*itertools.product(WRITERS, READERS)])
def test_reading_starts_where_the_client_asks(node: NodeProcess, topic: str, writer: str, reader: str) -> None:
    """In the middle of a compressed batch too: the client skips what comes before."""
    WRITERS[writer](node.kafka, topic, [Sent(b"%d" % number) for number in range(30)], "gzip")
    found = READERS[reader](node.kafka, topic, [0], 13, 17)
    assert [(each.offset, each.record.value) for each in found] == [
        (number, b"%d" % number) for number in range(17, 30)
    ]


@pytest.mark.requirement("R4.48")
@pytest.mark.parametrize("client", list(WRITERS))
def test_record_of_four_megabytes_passes(node: NodeProcess, topic: str, client: str) -> None:
    big = Sent(b"0123456789abcdef" * (4 << 16), b"big")
    options: dict[str, object] = {"max_request_size": 8 << 20}
    if client == "confluent":
        options = {"message.max.bytes": 8 << 20}
    WRITERS[client](node.kafka, topic, [big], "none", **options)
    assert READERS[client](node.kafka, topic, [0], 1) == [Seen(0, big)]


@pytest.mark.requirement("R4.64")
def test_everything_is_there_after_a_restart(node: NodeProcess, topic: str) -> None:
    sent = records()
    for writer in WRITERS:
        WRITERS[writer](node.kafka, topic, sent, "lz4")
    total = len(WRITERS)
    before = seen_by("confluent", node, topic, sent * total)
    assert sum(map(len, before)) == len(sent) * total
    node.restart()
    for reader in READERS:
        assert seen_by(reader, node, topic, sent * total) == before, reader
    node.kill()
    node.start()
    assert seen_by("kafka-python", node, topic, sent * total) == before
