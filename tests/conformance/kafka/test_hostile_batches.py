"""Record batches that the log must not take: each is refused with Kafka's own code, and leaves nothing behind."""

import struct
from collections.abc import Callable, Iterator

import pytest
from crc32c import crc32c
from tests.support.canary import Canary
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import LATEST, Closed, RawKafka, batch_of, lying_batch

from headrace.records.builder import build_marker

TOPIC = "batches"
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_RECORD = 87
INVALID_TIMESTAMP = 32
UNSUPPORTED_COMPRESSION = 76
INVALID_TXN_STATE = 48
REFUSED = {CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION, INVALID_TXN_STATE}
"""Which of them depends on what is looked at first."""
CRC_AT, CRC_FROM = 17, 21
ATTRIBUTES_AT, LAST_DELTA_AT, MAGIC_AT, COUNT_AT, LENGTH_AT, MAX_TIME_AT = 21, 23, 16, 57, 8, 35
RECORDS_AT = 61


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("batches") / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
        yield node


@pytest.fixture(autouse=True)
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.kafka) as canary:
        yield canary


def changed(change: Callable[[bytearray], None], *, crc: bool = True) -> bytearray:
    """A good batch with something wrong in it, and a CRC that fits all the same."""
    batch = batch_of([b"one", b"two"])
    change(batch)
    if crc:
        struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CRC_FROM:])))
    return batch


def put(layout: str, place: int, value: int) -> Callable[[bytearray], None]:
    return lambda batch: struct.pack_into(layout, batch, place, value)


def grow(batch: bytearray) -> None:
    batch.append(0)
    put(">i", LENGTH_AT, len(batch) - 12)(batch)


MARKER = build_marker(is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, now_ms=1_700_000_000_000)
BAD = {
    "bad CRC": changed(put(">I", CRC_AT, 12345), crc=False),
    "one flipped bit": changed(lambda batch: batch.__setitem__(70, batch[70] ^ 1), crc=False),
    "magic 0": changed(put(">b", MAGIC_AT, 0)),
    "magic 1": changed(put(">b", MAGIC_AT, 1)),
    "magic 3": changed(put(">b", MAGIC_AT, 3)),
    "negative length": changed(put(">i", LENGTH_AT, -1)),
    "length beyond its end": changed(put(">i", LENGTH_AT, 2**31 - 1)),
    "length short of its end": changed(put(">i", LENGTH_AT, 60)),
    "no records": changed(put(">i", COUNT_AT, 0)),
    "negative count": changed(put(">i", COUNT_AT, -5)),
    "more records than bytes": changed(
        lambda batch: (put(">i", COUNT_AT, 2_000_000)(batch), put(">i", LAST_DELTA_AT, 1_999_999)(batch), None)[-1]
    ),
    "deltas that do not fit the count": changed(put(">i", LAST_DELTA_AT, 7)),
    "negative last delta": changed(put(">i", LAST_DELTA_AT, -1)),
    "unknown codec": changed(put(">h", ATTRIBUTES_AT, 7)),
    "control batch": changed(put(">h", ATTRIBUTES_AT, 0x20)),
    "transaction marker": MARKER,
    "two batches in one": batch_of([b"one"]) + batch_of([b"two"]),
    "nothing": bytearray(),
    "one byte": bytearray(1),
    "compressed, and nothing in it": lying_batch(None, claimed_count=2, packed=b""),
    "a header and no more": batch_of([b"x"])[:61],
    "cut in the middle": batch_of([b"x" * 100])[:90],
    "a record longer than its batch": changed(put(">B", RECORDS_AT, 126)),
    "a record of no bytes": changed(put(">B", RECORDS_AT, 0)),
    "a record whose place is another's": changed(put(">B", RECORDS_AT + 3, 2)),
    "a key longer than its record": changed(put(">B", RECORDS_AT + 4, 60)),
    "headers that are not there": changed(lambda batch: batch.__setitem__(-1, 2)),
    "bytes behind the last record": changed(grow),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_is_refused_and_takes_no_offset(node: NodeProcess, name: str) -> None:
    with RawKafka(node.kafka) as client:
        before = client.offset_at(TOPIC, 0, LATEST)
        answer = client.produce(TOPIC, 0, BAD[name])
        assert answer.error_code in REFUSED, answer
        assert answer.base_offset == -1
        assert client.offset_at(TOPIC, 0, LATEST) == before
        assert client.produce(TOPIC, 0, batch_of([b"good"])).base_offset == before


@pytest.mark.trap(20)
@pytest.mark.parametrize("content", [None, b"no records at all"])
def test_what_a_compressed_batch_holds_is_looked_at_only_where_compaction_needs_it(
    node: NodeProcess, content: bytes | None
) -> None:
    """Its header is right and its records are not: elsewhere it is kept as it came, byte for byte."""
    topics = {"kept": f"kept-{content is None}", "compacted": f"compacted-{content is None}"}
    batch = lying_batch(content, claimed_count=100)
    with RawKafka(node.kafka) as client:
        client.create_topic(topics["kept"])
        client.create_topic(topics["compacted"], configs={"cleanup.policy": "compact"})
        assert client.produce(topics["compacted"], 0, batch).error_code == INVALID_RECORD
        assert client.produce(topics["kept"], 0, batch).error_code == 0
        assert client.produce(topics["kept"], 0, batch_of([b"next"])).base_offset == 100
        kept = bytes(client.fetch(topics["kept"], 0, 0).records or b"")
    assert kept[CRC_AT : len(batch)] == batch[CRC_AT:]


def test_a_batch_over_the_topics_limit_is_too_large(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        client.create_topic("small", configs={"max.message.bytes": "1000"})
        assert client.produce("small", 0, batch_of([bytes(2000)])).error_code == MESSAGE_TOO_LARGE
        assert client.produce("small", 0, batch_of([bytes(500)])).error_code == 0


def test_a_time_far_in_the_future_is_refused(node: NodeProcess) -> None:
    batch = changed(put(">q", MAX_TIME_AT, 2**62))
    with RawKafka(node.kafka) as client:
        assert client.produce(TOPIC, 0, batch).error_code == INVALID_TIMESTAMP


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist_are_refused(node: NodeProcess, acks: int) -> None:
    with RawKafka(node.kafka) as client:
        before = client.offset_at(TOPIC, 0, LATEST)
        assert client.produce(TOPIC, 0, batch_of([b"x"]), acks=acks).error_code == INVALID_REQUIRED_ACKS
        assert client.offset_at(TOPIC, 0, LATEST) == before


@pytest.mark.trap(23)
def test_a_bad_batch_with_no_acks_closes_the_connection_without_a_byte(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        client.send_produce(TOPIC, 0, BAD["bad CRC"], acks=0)
        with pytest.raises(Closed):
            client.read_frame()


@pytest.mark.trap(23)
def test_no_acks_gets_no_answer_and_the_next_request_gets_its_own(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        before = client.offset_at(TOPIC, 0, LATEST)
        for _ in range(3):
            client.send_produce(TOPIC, 0, batch_of([b"quiet"]), acks=0)
        assert client.api_versions().error_code == 0
        assert client.produce(TOPIC, 0, batch_of([b"loud"])).base_offset == before + 3
