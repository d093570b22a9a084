"""Fetch on the wire: what is returned, how much of it, and when."""

import contextlib
import threading
import time
from collections.abc import Callable

import pytest
from tests.support.kafka_client import (
    Wanted,
    call_to_the_last_byte,
    delete_topic,
    fetch,
    fetch_request,
    leader_epoch,
    produce,
    produce_one,
    topic_id,
)
from tests.support.node import NodeProcess
from tests.support.raw_groups import add_partitions, end, init_transactions, transactional_batch
from tests.support.raw_kafka import Producer, RawKafka, batch_of

from headrace.doors.kafka.routes import ROUTES
from headrace.records.batch import iterate_batches
from headrace.records.record import read_records
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.fetch_response import FetchResponse, PartitionData

VERSIONS = range(ROUTES[1].versions[0], ROUTES[1].versions[1] + 1)
TOPIC_IDS_FROM = 13
LONG_MS = 600_000
"""Longer than any test waits for an answer: a fetch that is answered at all did not wait for its time to be over."""
QUICK_TRIES = 10
"""Of which one is quick, on a machine that stands still now and then."""
NOBODYS_ID = bytes.fromhex("00112233445566778899aabbccddeeff")


def only(answer: FetchResponse) -> PartitionData:
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


def offsets(row: PartitionData) -> list[int]:
    return [record.offset for record in read_records(row.records or b"")]


def bases(row: PartitionData) -> list[int]:
    return [header.base_offset for header, _ in iterate_batches(row.records or b"")]


def timed(call: Callable[[], FetchResponse]) -> tuple[FetchResponse, float]:
    started = time.monotonic()
    answer = call()
    return answer, time.monotonic() - started


def comes_within(least: float, most: float, call: Callable[[], FetchResponse]) -> FetchResponse:
    """The answer of a try that took between so many seconds; none may take less."""
    for _ in range(QUICK_TRIES):
        answer, seconds = timed(call)
        assert seconds >= least, f"answered after {seconds:.3f} s"
        if seconds < most:
            return answer
    raise AssertionError(f"not once in less than {most} s")


# What


@pytest.mark.requirement("R4.35", "R4.36", "R4.39", "R4.44", "R4.45", "R4.46", "R4.48", "C56")
@pytest.mark.trap(6, 7, 13, 45)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_and_is_laid_out_to_the_last_byte(client: RawKafka, topic: str, version: int) -> None:
    batch = batch_of([b"a", b"b"])
    produce_one(client, topic, batch)
    named = topic if version < TOPIC_IDS_FROM else topic_id(client, topic)
    answer = call_to_the_last_byte(client, fetch_request(Wanted(named)), version, FetchResponse)
    assert (answer.throttle_time_ms, answer.error_code, answer.session_id) == (0, 0, 0)
    found = answer.responses[0]
    assert (found.topic_id if version >= TOPIC_IDS_FROM else found.topic) == named
    row = only(answer)
    assert (row.partition_index, row.error_code, row.high_watermark, row.last_stable_offset) == (0, 0, 2, 2)
    assert row.log_start_offset == (0 if version >= 5 else -1)
    assert row.preferred_read_replica == -1
    assert row.aborted_transactions is None
    assert bytes(row.records or b"")[16:] == bytes(batch[16:])


@pytest.mark.requirement("R4.43", "X4.2")
@pytest.mark.trap(6, 45)
@pytest.mark.parametrize("version", VERSIONS)
def test_errors_are_per_partition_and_their_records_are_empty_not_null(
    client: RawKafka, topic: str, version: int
) -> None:
    produce_one(client, topic, batch_of([b"x"]))
    named = topic if version < TOPIC_IDS_FROM else topic_id(client, topic)
    request = fetch_request(Wanted(named), Wanted(named, partition=7), Wanted(named, 99, partition=0))
    rows = call_to_the_last_byte(client, request, version, FetchResponse).responses[0].partitions
    assert [row.error_code for row in rows] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ]
    assert [bytes(row.records or b"") for row in rows[1:]] == [b"", b""]
    assert all(row.records is not None for row in rows)
    assert (rows[1].high_watermark, rows[2].high_watermark) == (-1, -1)


@pytest.mark.requirement("R4.43", "X4.2")
@pytest.mark.trap(14)
def test_unknown_topics_by_name_and_by_id(client: RawKafka, name: str) -> None:
    assert only(fetch(client, Wanted(name), wait_ms=LONG_MS)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in (13, 17):
        answer = fetch(client, Wanted(NOBODYS_ID), wait_ms=LONG_MS, version=version)
        assert answer.responses[0].topic_id == NOBODYS_ID
        row = only(answer)
        assert (row.partition_index, row.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_ID)
    assert only(fetch(client, Wanted(bytes(16)), version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.requirement("X4.2")
@pytest.mark.parametrize("version", [4, 7, 12, 16])
def test_no_topics_asked_for_is_no_topics_answered(client: RawKafka, version: int) -> None:
    answer = call_to_the_last_byte(client, fetch_request(wait_ms=LONG_MS), version, FetchResponse)
    assert answer.responses == []


@pytest.mark.requirement("R4.39")
@pytest.mark.trap(11)
def test_batch_that_holds_the_offset_is_returned_whole(client: RawKafka, topic: str) -> None:
    for _ in range(3):
        produce_one(client, topic, batch_of([b"x"] * 10))
    for offset in range(30):
        row = client.fetch(topic, 0, offset)
        assert bases(row)[0] == offset // 10 * 10
        assert offsets(row)[-1] == 29
        assert offset in offsets(row)


@pytest.mark.requirement("R4.39")
def test_reading_at_the_end_is_empty_and_beyond_it_is_out_of_range(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"x"] * 5))
    row = client.fetch(topic, 0, 5)
    assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (0, 5, b"")
    for offset in (6, 2**62, -1, -2):
        assert client.fetch(topic, 0, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# How much


@pytest.mark.requirement("R4.42")
@pytest.mark.trap(10)
def test_partition_limit_returns_whole_batches_below_it(client: RawKafka, topic: str) -> None:
    size = len(batch_of([b"x" * 1000]))
    for _ in range(10):
        produce_one(client, topic, batch_of([b"x" * 1000]))
    for limit, expected in ((size * 3, 3), (size * 4 - 1, 3), (size * 4, 4), (size * 100, 10), (size, 1)):
        row = only(fetch(client, Wanted(topic, bytes_max=limit)))
        assert bases(row) == list(range(expected)), limit
        assert len(row.records or b"") == size * expected


@pytest.mark.requirement("R4.42")
@pytest.mark.trap(10)
@pytest.mark.parametrize("limits", [(1, 1), (1, 1 << 20), (1 << 20, 1), (0, 0), (0, 1 << 20), (1 << 20, 0), (-1, -1)])
def test_first_batch_is_returned_above_both_limits(client: RawKafka, topic: str, limits: tuple[int, int]) -> None:
    for _ in range(3):
        produce_one(client, topic, batch_of([b"x" * 1000]))
    total, partition = limits
    assert bases(only(fetch(client, Wanted(topic, bytes_max=partition), max_bytes=total))) == [0]


@pytest.mark.requirement("R4.42")
@pytest.mark.trap(10)
def test_total_limit_is_spent_in_the_order_of_the_request(client: RawKafka, name: str) -> None:
    client.create_topic(name, 4)
    batch = batch_of([b"x" * 1000])
    for _ in range(3):
        produce(client, {name: dict.fromkeys(range(1, 4), batch)})
    wanted = [Wanted(name, partition=index) for index in (0, 3, 1, 2)]
    answer = fetch(client, *wanted, max_bytes=len(batch) * 4)
    found = {row.partition_index: len(bases(row)) for row in answer.responses[0].partitions}
    # Partition 0 has nothing; the first that has something gives a batch even where nothing fits.
    assert found == {0: 0, 3: 3, 1: 1, 2: 0}
    answer = fetch(client, *wanted, max_bytes=1)
    assert {row.partition_index: len(bases(row)) for row in answer.responses[0].partitions} == {0: 0, 3: 1, 1: 0, 2: 0}


# When


@pytest.mark.requirement("R4.40")
@pytest.mark.trap(8, 9)
def test_without_data_the_answer_comes_at_max_wait(client: RawKafka, topic: str) -> None:
    answer = comes_within(0.29, 1.5, lambda: fetch(client, Wanted(topic), wait_ms=300))
    assert (only(answer).error_code, bytes(only(answer).records or b"")) == (0, b"")
    comes_within(0, 0.25, lambda: fetch(client, Wanted(topic), wait_ms=0))


@pytest.mark.requirement("R4.40", "R4.41")
@pytest.mark.trap(8)
def test_append_wakes_a_waiting_fetch(node: NodeProcess, client: RawKafka, topic: str) -> None:
    waiting = client.send_request(fetch_request(Wanted(topic), wait_ms=LONG_MS), 12)
    with RawKafka(node.kafka) as other:
        produce_one(other, topic, batch_of([b"here"]))
    answer = client.read_response(FetchResponse, 12, waiting)
    assert offsets(only(answer)) == [0]


@pytest.mark.requirement("R4.41")
@pytest.mark.trap(9)
def test_fetch_waits_until_min_bytes_exist(node: NodeProcess, client: RawKafka, topic: str) -> None:
    size = len(batch_of([b"x" * 1000]))
    waiting = client.send_request(fetch_request(Wanted(topic), wait_ms=LONG_MS, min_bytes=size * 3), 12)
    with RawKafka(node.kafka) as other:
        for expected in (0, 1):
            assert produce_one(other, topic, batch_of([b"x" * 1000])).base_offset == expected
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.read_frame()
        client.socket.settimeout(30)
        produce_one(other, topic, batch_of([b"x" * 1000]))
    assert bases(only(client.read_response(FetchResponse, 12, waiting))) == [0, 1, 2]


@pytest.mark.requirement("R4.41")
@pytest.mark.trap(9)
def test_min_bytes_counts_over_all_partitions(node: NodeProcess, client: RawKafka, name: str) -> None:
    client.create_topic(name, 3)
    batch = batch_of([b"x" * 1000])
    wanted = [Wanted(name, partition=index) for index in range(3)]
    waiting = client.send_request(fetch_request(*wanted, wait_ms=LONG_MS, min_bytes=len(batch) * 3), 12)
    with RawKafka(node.kafka) as other:
        for index in range(3):
            other.produce(name, index, batch)
    rows = client.read_response(FetchResponse, 12, waiting).responses[0].partitions
    assert [bases(row) for row in rows] == [[0], [0], [0]]


@pytest.mark.requirement("R4.40", "R4.41")
@pytest.mark.trap(9)
def test_short_of_min_bytes_what_there_is_comes_at_max_wait(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"little"]))
    answer = comes_within(0.29, 1.5, lambda: fetch(client, Wanted(topic), wait_ms=300, min_bytes=1 << 19))
    assert offsets(only(answer)) == [0]


@pytest.mark.requirement("R4.41")
@pytest.mark.trap(9)
def test_min_bytes_is_capped_by_max_bytes(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"x" * 2000]))
    answer = fetch(client, Wanted(topic), wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=1000)
    assert offsets(only(answer)) == [0]


@pytest.mark.requirement("R4.40", "R4.43")
@pytest.mark.trap(8)
def test_error_on_one_partition_does_not_wait_for_the_others(client: RawKafka, topic: str) -> None:
    answer = fetch(client, Wanted(topic), Wanted(topic, partition=9), wait_ms=LONG_MS)
    assert [row.error_code for row in answer.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert only(fetch(client, Wanted(topic, offset=50), wait_ms=LONG_MS)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.trap(8)
def test_deleting_the_topic_ends_the_wait(node: NodeProcess, client: RawKafka, topic: str) -> None:
    waiting = client.send_request(fetch_request(Wanted(topic), wait_ms=LONG_MS), 12)
    with RawKafka(node.kafka) as other:
        assert delete_topic(other, topic) == 0
    answer = client.read_response(FetchResponse, 12, waiting)
    assert only(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bytes(only(answer).records or b"") == b""


@pytest.mark.trap(8, 24)
def test_many_waiting_consumers_all_hear_of_one_append(node: NodeProcess, topic: str) -> None:
    with contextlib.ExitStack() as stack:
        consumers = [stack.enter_context(RawKafka(node.kafka)) for _ in range(50)]
        waiting = [each.send_request(fetch_request(Wanted(topic), wait_ms=LONG_MS), 12) for each in consumers]
        produce_one(stack.enter_context(RawKafka(node.kafka)), topic, batch_of([b"news"]))
        for each, correlation_id in zip(consumers, waiting, strict=True):
            assert offsets(only(each.read_response(FetchResponse, 12, correlation_id))) == [0]


@pytest.mark.requirement("R3.48", "R3.49", "R3.52")
def test_tail_is_read_while_it_is_written(node: NodeProcess, topic: str) -> None:
    """Consumers see every record once and in order, while producers append."""
    count = 400
    failures: list[str] = []

    def consume() -> None:
        with RawKafka(node.kafka) as consumer:
            expected = 0
            while expected < count:
                row = only(fetch(consumer, Wanted(topic, expected), wait_ms=LONG_MS))
                values = [(each.offset, each.value) for each in read_records(row.records or b"")]
                fresh = [each for each in values if each[0] >= expected]
                if (
                    fresh != [(expected + place, b"%d" % (expected + place)) for place in range(len(fresh))]
                    or not fresh
                ):
                    failures.append(f"at {expected}: {values[:3]}")
                    return
                expected += len(fresh)

    readers = [threading.Thread(target=consume) for _ in range(3)]
    for reader in readers:
        reader.start()
    with RawKafka(node.kafka) as producer:
        sent = [producer.send_produce(topic, 0, batch_of([b"%d" % number])) for number in range(count)]
        for correlation_id in sent:
            assert producer.read_produced(correlation_id).error_code == 0
    for reader in readers:
        reader.join(60)
    assert failures == []
    assert not any(reader.is_alive() for reader in readers)


# Committed or not


@pytest.mark.requirement("R4.38", "R4.47")
@pytest.mark.trap(28)
@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_isolation_level_is_honoured(client: RawKafka, topic: str, version: int) -> None:
    named = topic if version < TOPIC_IDS_FROM else topic_id(client, topic)
    produce_one(client, topic, batch_of([b"plain"]))
    answer = init_transactions(client, topic)
    producer = Producer(answer.producer_id, answer.producer_epoch)
    assert add_partitions(client, topic, producer, topic, [0]) == [0]
    batch = transactional_batch([b"a", b"b"], producer, 0, now_ms=time.time_ns() // 1_000_000)
    assert produce_one(client, topic, batch).error_code == 0

    row = only(fetch(client, Wanted(named), version=version, isolation=1))
    assert (offsets(row), row.high_watermark, row.last_stable_offset) == ([0], 3, 1)
    assert row.aborted_transactions == []
    row = only(fetch(client, Wanted(named), version=version, isolation=0))
    assert (offsets(row), row.last_stable_offset, row.aborted_transactions) == ([0, 1, 2], 1, None)

    assert end(client, topic, producer, is_commit=False) == 0
    row = only(fetch(client, Wanted(named), version=version, isolation=1, wait_ms=LONG_MS, min_bytes=150))
    assert row.last_stable_offset == 4
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions or []] == [(producer.id, 1)]
    assert bases(row) == [0, 1, 3]


@pytest.mark.requirement("R4.38")
@pytest.mark.trap(28)
def test_committed_reader_waits_for_the_outcome_not_for_the_records(
    node: NodeProcess, client: RawKafka, topic: str
) -> None:
    answer = init_transactions(client, topic)
    producer = Producer(answer.producer_id, answer.producer_epoch)
    add_partitions(client, topic, producer, topic, [0])
    with RawKafka(node.kafka) as consumer:
        waiting = consumer.send_request(fetch_request(Wanted(topic), wait_ms=LONG_MS, isolation=1), 12)
        batch = transactional_batch([b"a"], producer, 0, now_ms=time.time_ns() // 1_000_000)
        assert produce_one(client, topic, batch).error_code == 0
        consumer.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            consumer.read_frame()
        consumer.socket.settimeout(30)
        assert end(client, topic, producer, is_commit=True) == 0
        row = only(consumer.read_response(FetchResponse, 12, waiting))
        assert (bases(row), row.aborted_transactions) == ([0, 1], [])


@pytest.mark.requirement("R4.37")
def test_rack_and_forgotten_topics_are_read_over(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"x"]))
    for version in (11, 12, 17):
        named = topic if version < TOPIC_IDS_FROM else topic_id(client, topic)
        request = fetch_request(Wanted(named), forgotten={named: [3, 4, 5]})
        request.rack_id = "rack-é"
        client.send(encode_request(request, version, 77, None))
        frame = client.read_frame()
        row = only(FetchResponse.decode(frame, version, 4 if version < 12 else 5))
        assert offsets(row) == [0]


@pytest.mark.trap(17)
@pytest.mark.parametrize("version", [9, 11, 12, 16])
def test_leader_epoch_of_the_client_is_checked(client: RawKafka, topic: str, version: int) -> None:
    produce_one(client, topic, batch_of([b"x"]))
    epoch = leader_epoch(client, topic)
    named = topic if version < TOPIC_IDS_FROM else topic_id(client, topic)

    def code(believed: int) -> int:
        return only(fetch(client, Wanted(named, leader_epoch=believed), version=version)).error_code

    assert (code(-1), code(epoch), code(epoch + 1)) == (0, 0, ErrorCode.UNKNOWN_LEADER_EPOCH)
    if epoch > 0:
        assert code(epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
