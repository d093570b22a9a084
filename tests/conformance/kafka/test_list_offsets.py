"""ListOffsets on the wire: times, special times, and the versions that know them."""

import pytest
from tests.support.kafka_client import (
    call_to_the_last_byte,
    leader_epoch,
    list_offsets,
    produce_one,
)
from tests.support.node import eventually
from tests.support.raw_groups import add_partitions, end, init_transactions, transactional_batch
from tests.support.raw_kafka import Producer, RawKafka, batch_of

from headrace.doors.kafka.routes import ROUTES
from headrace.records.batch import Codec
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse

VERSIONS = range(ROUTES[2].versions[0], ROUTES[2].versions[1] + 1)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
BASE = 1_600_000_000_000


def timed_batch(*times: int, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(value=b"x", timestamp_ms=BASE + each) for each in times], now_ms=0, codec=codec)


def at(client: RawKafka, topic: str, timestamp: int, **options: int) -> tuple[int, int]:
    found = list_offsets(client, topic, timestamp, **options)
    assert found.error_code == 0
    return found.offset, found.timestamp


def delete_before(client: RawKafka, topic: str, offset: int) -> None:
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
    answer = client.call(DeleteRecordsRequest([wanted], 5000), 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.trap(15, 45)
@pytest.mark.parametrize("version", VERSIONS)
def test_ends_of_the_log_in_every_version(client: RawKafka, topic: str, version: int) -> None:
    produce_one(client, topic, batch_of([b"x"] * 7))
    delete_before(client, topic, 3)
    partitions = [ListOffsetsPartition(0, -1, LATEST), ListOffsetsPartition(0, -1, EARLIEST)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [*partitions, ListOffsetsPartition(9, -1, LATEST)])])
    rows = call_to_the_last_byte(client, request, version, ListOffsetsResponse).topics[0].partitions
    assert [(row.offset, row.timestamp, row.error_code) for row in rows] == [
        (7, -1, 0),
        (3, -1, 0),
        (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    epoch = leader_epoch(client, topic) if version >= 4 else -1
    assert [row.leader_epoch for row in rows] == [epoch, epoch, -1]


@pytest.mark.parametrize("codec", list(Codec))
def test_time_finds_the_first_record_at_or_after_it(client: RawKafka, topic: str, codec: Codec) -> None:
    produce_one(client, topic, timed_batch(0, 10, 20, codec=codec))
    produce_one(client, topic, timed_batch(30, 25, 40, codec=codec))
    produce_one(client, topic, timed_batch(50, codec=codec))
    for asked, offset, found in ((-5, 0, 0), (0, 0, 0), (1, 1, 10), (20, 2, 20), (21, 3, 30), (31, 5, 40), (50, 6, 50)):
        assert at(client, topic, BASE + asked) == (offset, BASE + found), asked
    assert at(client, topic, BASE + 51) == (-1, -1)
    assert at(client, topic, 0) == (0, BASE)


def test_nothing_found_is_no_error(client: RawKafka, topic: str) -> None:
    for timestamp in (0, BASE, MAX_TIMESTAMP):
        found = list_offsets(client, topic, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)
    assert at(client, topic, LATEST) == at(client, topic, EARLIEST) == (0, -1)


def test_time_looks_behind_what_was_deleted_also_inside_a_batch(client: RawKafka, topic: str) -> None:
    """The only match in the batch at the log start is deleted; the next is in a later batch."""
    produce_one(client, topic, timed_batch(100, 0, 0))
    produce_one(client, topic, timed_batch(0, 90))
    assert at(client, topic, BASE + 50) == (0, BASE + 100)
    delete_before(client, topic, 1)
    assert at(client, topic, BASE + 50) == (4, BASE + 90)
    assert at(client, topic, BASE) == (1, BASE)
    assert at(client, topic, MAX_TIMESTAMP) == (4, BASE + 90)


def test_greatest_timestamp_is_found_wherever_it_is(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, timed_batch(10, 20))
    produce_one(client, topic, timed_batch(5, 99, 7))
    produce_one(client, topic, timed_batch(30))
    assert at(client, topic, MAX_TIMESTAMP) == (3, BASE + 99)


def test_local_start_and_tiered_end_are_within_the_log(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"x"] * 4))
    local = list_offsets(client, topic, EARLIEST_LOCAL, version=8)
    assert (local.error_code, local.offset) == (0, 0)
    tiered = list_offsets(client, topic, LATEST_TIERED, version=9)
    assert tiered.error_code == 0
    assert -1 <= tiered.offset < 4


@pytest.mark.parametrize(
    ("timestamp", "first"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 99), (-100, 99)]
)
def test_special_times_are_known_from_their_version_on(
    client: RawKafka, topic: str, timestamp: int, first: int
) -> None:
    produce_one(client, topic, batch_of([b"x"]))
    for version in VERSIONS:
        expected = 0 if version >= first else ErrorCode.UNSUPPORTED_VERSION
        assert list_offsets(client, topic, timestamp, version=version).error_code == expected, version


@pytest.mark.requirement("R4.38")
@pytest.mark.trap(28)
def test_latest_is_the_stable_end_for_committed_readers(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, timed_batch(0))
    answer = init_transactions(client, topic)
    producer = Producer(answer.producer_id, answer.producer_epoch)
    add_partitions(client, topic, producer, topic, [0])
    batch = transactional_batch([b"a", b"b"], producer, 0, now_ms=BASE + 1000)
    assert produce_one(client, topic, batch).error_code == 0
    assert at(client, topic, LATEST, isolation=1)[0] == 1
    assert at(client, topic, LATEST, isolation=0)[0] == 3
    assert at(client, topic, BASE + 1000, isolation=1) == (-1, -1)
    assert at(client, topic, BASE + 1000, isolation=0) == (1, BASE + 1000)
    # The newest record is one that a reader of what is committed does not see yet. No other is looked for.
    assert at(client, topic, MAX_TIMESTAMP, isolation=1) == (-1, -1)
    assert at(client, topic, MAX_TIMESTAMP, isolation=0)[1] >= BASE + 1000
    assert end(client, topic, producer, is_commit=True) == 0
    eventually(lambda: at(client, topic, LATEST, isolation=1)[0] == 4, 60, "no marker")
    assert at(client, topic, BASE + 1000, isolation=1) == (1, BASE + 1000)


@pytest.mark.trap(17)
@pytest.mark.parametrize("version", [4, 5, 6, 10])
def test_leader_epoch_of_the_client_is_checked(client: RawKafka, topic: str, version: int) -> None:
    epoch = leader_epoch(client, topic)
    assert list_offsets(client, topic, LATEST, epoch=epoch, version=version).error_code == 0
    newer = list_offsets(client, topic, LATEST, epoch=epoch + 1, version=version)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_unknown_topic_is_told_so(client: RawKafka, name: str) -> None:
    assert list_offsets(client, name, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
