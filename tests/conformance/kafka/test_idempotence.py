"""Idempotent producers on the wire: repeated batches, gaps, fences, and the memory of it over restarts."""

import concurrent.futures
from collections.abc import Iterator

import pytest
from tests.support.kafka_client import produce_one
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import LATEST, Producer, RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse

pytestmark = pytest.mark.trap(25)
SEQUENCES = 2**31


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Its own: these tests stop it, kill it and start it again."""
    with running_node(tmp_path_factory.mktemp("idempotence") / "data") as started:
        yield started


@pytest.fixture
def producer(client: RawKafka) -> Producer:
    return client.init_producer()


def send(client: RawKafka, topic: str, producer: Producer, sequence: int, count: int = 1) -> tuple[int, int]:
    """Error code and base offset."""
    row = produce_one(client, topic, batch_of([b"x"] * count, producer=producer, sequence=sequence))
    return row.error_code, row.base_offset


def refused(code: ErrorCode) -> tuple[int, int]:
    return code, -1


def test_every_producer_gets_an_id_of_its_own(node: NodeProcess) -> None:
    def ask(_: int) -> int:
        with RawKafka(node.kafka) as client:
            return client.init_producer().id

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(ask, range(32)))
    assert len(set(ids)) == 32
    assert min(ids) >= 0


@pytest.mark.parametrize("version", range(6))
def test_producer_id_in_every_version(client: RawKafka, version: int) -> None:
    answer = client.call(InitProducerIdRequest(None, 60_000), version, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)


@pytest.mark.requirement("R4.62")
def test_repeated_batch_gets_its_original_offset_and_is_not_written_again(
    client: RawKafka, topic: str, producer: Producer
) -> None:
    sequence = 0
    sent = []
    for count in (3, 1, 2, 5, 1):
        sent.append((sequence, count, send(client, topic, producer, sequence, count)))
        sequence += count
    assert [answer for _, _, answer in sent] == [(0, 0), (0, 3), (0, 4), (0, 6), (0, 11)]
    for first, count, answer in sent:
        assert send(client, topic, producer, first, count) == answer
    assert client.offset_at(topic, 0, LATEST) == 12
    assert send(client, topic, producer, 12) == (0, 12)


def test_only_the_last_five_batches_are_remembered(client: RawKafka, topic: str, producer: Producer) -> None:
    for sequence in range(6):
        assert send(client, topic, producer, sequence) == (0, sequence)
    assert send(client, topic, producer, 1) == (0, 1)
    assert send(client, topic, producer, 0) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert client.offset_at(topic, 0, LATEST) == 6


@pytest.mark.trap(26)
def test_gap_is_refused_and_nothing_is_written(client: RawKafka, topic: str, producer: Producer) -> None:
    assert send(client, topic, producer, 0, 2) == (0, 0)
    for sequence in (1, 3, 7, SEQUENCES - 1):
        assert send(client, topic, producer, sequence) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # Same first sequence, other length: no repetition of anything.
    assert send(client, topic, producer, 0, 3) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert client.offset_at(topic, 0, LATEST) == 2
    assert send(client, topic, producer, 2) == (0, 2)


def test_sequences_wrap_at_two_to_the_thirty_one(client: RawKafka, topic: str, producer: Producer) -> None:
    assert send(client, topic, producer, SEQUENCES - 2, 1) == (0, 0)
    assert send(client, topic, producer, SEQUENCES - 1, 3) == (0, 1)
    assert send(client, topic, producer, SEQUENCES - 1, 3) == (0, 1)
    assert send(client, topic, producer, 2, 1) == (0, 4)
    assert send(client, topic, producer, 4, 1) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_producer_nobody_remembers_may_begin_anywhere(client: RawKafka, topic: str, producer: Producer) -> None:
    """Its state has expired, or went with deleted records; refusing it would stop it for good."""
    assert send(client, topic, producer, 4711) == (0, 0)
    assert send(client, topic, producer, 4712) == (0, 1)


@pytest.mark.parametrize(("epoch", "sequence"), [(0, -1), (-1, 0), (-1, -1)])
def test_producer_without_epoch_or_sequence_is_none(
    client: RawKafka, topic: str, producer: Producer, epoch: int, sequence: int
) -> None:
    nobody = Producer(producer.id, epoch)
    assert send(client, topic, nobody, sequence) == refused(ErrorCode.INVALID_RECORD)
    assert send(client, topic, Producer(-2, 0), 0) == refused(ErrorCode.INVALID_RECORD)


def test_newer_epoch_fences_the_older_one(client: RawKafka, topic: str, producer: Producer) -> None:
    assert send(client, topic, producer, 0) == (0, 0)
    newer = Producer(producer.id, producer.epoch + 1)
    assert send(client, topic, newer, 5) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert send(client, topic, newer, 0) == (0, 1)
    assert send(client, topic, producer, 1) == refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert client.offset_at(topic, 0, LATEST) == 2


def test_partitions_count_for_themselves(client: RawKafka, name: str, producer: Producer) -> None:
    client.create_topic(name, 2)
    for index in (0, 1):
        row = client.produce(name, index, batch_of([b"x"], producer=producer, sequence=0))
        assert (row.error_code, row.base_offset) == (0, 0)


@pytest.mark.trap(24)
def test_five_pipelined_batches_sent_twice_are_written_once(client: RawKafka, topic: str, producer: Producer) -> None:
    """The duplicate waits for its original's durability and gets its offset, though it may arrive in the same flush."""
    batches = [batch_of([b"%d" % number], producer=producer, sequence=number) for number in range(5)]
    sent = [client.send_produce(topic, 0, batch) for batch in (*batches, *batches)]
    answers = [client.read_produced(each) for each in sent]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, number) for number in range(5)] * 2
    assert [record.value for record in client.read_all(topic, 0)] == [b"%d" % number for number in range(5)]


@pytest.mark.requirement("R4.64")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_memory_of_producers_survives_a_restart(node: NodeProcess, name: str, is_killed: bool) -> None:
    with RawKafka(node.kafka) as client:
        client.create_topic(name)
        producer, fenced = client.init_producer(), client.init_producer()
        for sequence in range(7):
            assert send(client, name, producer, sequence) == (0, sequence)
        assert send(client, name, fenced, 0) == (0, 7)
        assert send(client, name, Producer(fenced.id, 1), 0) == (0, 8)
    if is_killed:
        node.kill()
        node.start()
    else:
        node.restart()
    with RawKafka(node.kafka) as client:
        for sequence in range(2, 7):
            assert send(client, name, producer, sequence) == (0, sequence)
        assert send(client, name, producer, 1) == refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert send(client, name, fenced, 1) == refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert client.init_producer().id not in (producer.id, fenced.id)
        assert client.offset_at(name, 0, LATEST) == 9
        assert send(client, name, producer, 7) == (0, 9)
