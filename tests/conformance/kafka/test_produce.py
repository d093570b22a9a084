"""Produce on the wire: what is taken, what is refused and with which code, and what lies in the log afterwards."""

import struct
import time

import pytest
from crc32c import crc32c
from tests.support.kafka_client import (
    PRODUCE_BY_ID_FROM,
    call_to_the_last_byte,
    described,
    metadata,
    produce,
    produce_one,
    topic_id,
)
from tests.support.node import NodeProcess
from tests.support.raw_groups import commit
from tests.support.raw_kafka import EARLIEST, LATEST, RawKafka, batch_of, produce_request

from headrace.doors.kafka.routes import ROUTES
from headrace.records.batch import Codec, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_records
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse

VERSIONS = range(ROUTES[0].versions[0], ROUTES[0].versions[1] + 1)


@pytest.fixture(params=["compiled", "pure"])
def is_pure(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "pure")


@pytest.fixture
def node(is_pure: bool, node: NodeProcess, request: pytest.FixtureRequest) -> NodeProcess:
    """Everything here holds for produce in C and for its twin in Python."""
    serving: NodeProcess = request.getfixturevalue("pure_node") if is_pure else node
    return serving


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def stored(client: RawKafka, topic: str, offset: int = 0) -> bytes:
    return bytes(client.fetch(topic, 0, offset).records or b"")


def assert_refused(row: PartitionProduceResponse, code: ErrorCode) -> None:
    assert (row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset) == (code, -1, -1, -1)


# What is taken


@pytest.mark.requirement("R4.39", "R4.48", "R4.49", "R4.50", "R4.56", "R4.57", "R4.58", "R4.62", "X4.2")
@pytest.mark.trap(45)
@pytest.mark.parametrize("version", VERSIONS)
def test_batch_is_appended_and_answered_in_the_version_of_the_request(
    client: RawKafka, topic: str, version: int
) -> None:
    batch = batch_of([b"a", b"b", b"c"])
    by_id = topic_id(client, topic)
    for expected in (0, 3):
        request = produce_request(topic, 0, batch, topic_id=by_id)
        answer = call_to_the_last_byte(client, request, version, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        named = (answer.responses[0].name, answer.responses[0].topic_id)
        assert named == (("", by_id) if version >= PRODUCE_BY_ID_FROM else (topic, bytes(16)))
        assert (row.index, row.error_code, row.base_offset) == (0, 0, expected)
        assert (row.log_append_time_ms, row.record_errors, row.error_message) == (-1, [], None)
        assert row.log_start_offset == (0 if version >= 5 else -1)
        assert answer.throttle_time_ms == 0


@pytest.mark.requirement("R4.48", "X4.2")
@pytest.mark.trap(18, 20)
@pytest.mark.parametrize("codec", list(Codec))
def test_batch_is_stored_byte_exact_but_for_base_offset_and_leader_epoch(
    client: RawKafka, topic: str, codec: Codec
) -> None:
    """Compressed or not, nobody looks inside and nobody writes it anew."""
    records = [NewRecord(key=b"k", value=b"value " * 100, headers=(("h", b"1"), ("n", None))) for _ in range(10)]
    batch = build_batch(records, now_ms=now_ms(), codec=codec)
    epoch = described(client, topic).partitions[0].leader_epoch
    for number in range(3):
        assert produce_one(client, topic, batch).base_offset == number * 10
        expected = bytearray(batch)
        struct.pack_into(">q", expected, 0, number * 10)
        struct.pack_into(">i", expected, 12, epoch)
        assert stored(client, topic, number * 10) == bytes(expected)
    assert len(list(read_records(stored(client, topic)))) == 30


@pytest.mark.requirement("R4.57", "R4.62")
@pytest.mark.trap(19)
def test_offsets_go_on_behind_the_last_offset_of_each_batch(client: RawKafka, topic: str) -> None:
    sizes = [1, 5, 2, 100, 1]
    bases = [produce_one(client, topic, batch_of([b"x"] * size)).base_offset for size in sizes]
    assert bases == [0, 1, 6, 8, 108]
    assert client.offset_at(topic, 0, LATEST) == 109


@pytest.mark.requirement("R4.56", "R4.58")
def test_every_partition_has_its_own_offsets_and_its_own_outcome(client: RawKafka, name: str) -> None:
    client.create_topic(name, 3)
    broken = batch_of([b"x"])
    broken[-1] ^= 1
    rows = produce(
        client,
        {name: {0: batch_of([b"zero"]), 1: broken, 2: batch_of([b"two", b"two"]), 9: batch_of([b"nowhere"])}},
    )
    assert (rows[(name, 0)].error_code, rows[(name, 0)].base_offset) == (0, 0)
    assert_refused(rows[(name, 1)], ErrorCode.CORRUPT_MESSAGE)
    assert (rows[(name, 2)].error_code, rows[(name, 2)].base_offset) == (0, 0)
    assert_refused(rows[(name, 9)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [client.offset_at(name, index, LATEST) for index in range(3)] == [1, 0, 2]


@pytest.mark.requirement("R4.55")
def test_topic_that_does_not_exist_is_created(client: RawKafka, name: str) -> None:
    other = f"{name}-other"
    rows = produce(client, {name: {0: batch_of([b"first"])}, other: {0: batch_of([b"first"])}})
    assert [(row.error_code, row.base_offset) for row in rows.values()] == [(0, 0), (0, 0)]
    assert [each.error_code for each in metadata(client, [name, other]).topics] == [0, 0]


@pytest.mark.requirement("R4.55", "R4.58")
@pytest.mark.trap(14)
@pytest.mark.parametrize("unknown", [bytes(16), bytes(range(16))])
def test_an_unknown_topic_id_is_refused_alone_and_creates_nothing(client: RawKafka, topic: str, unknown: bytes) -> None:
    known = topic_id(client, topic)
    rows = [PartitionProduceData(0, bytes(batch_of([b"x"])))]
    request = ProduceRequest(None, -1, 10_000, [TopicProduceData("", each, rows) for each in (unknown, known)])
    before = {each.name for each in metadata(client, None).topics}
    answer = client.call(request, 13, ProduceResponse)
    assert [each.topic_id for each in answer.responses] == [unknown, known]
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
    assert {each.name for each in metadata(client, None).topics} == before


@pytest.mark.parametrize("bad", ["with space", "slash/slash", "..", "x" * 250])
def test_topic_that_cannot_exist_is_refused_alone(client: RawKafka, topic: str, bad: str) -> None:
    rows = produce(client, {bad: {0: batch_of([b"x"])}, topic: {0: batch_of([b"x"])}})
    assert_refused(rows[(bad, 0)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert rows[(topic, 0)].error_code == 0


@pytest.mark.requirement("R4.52", "R4.53", "R3.50")
@pytest.mark.parametrize("acks", [1, -1])
def test_acknowledged_records_are_readable_by_the_time_of_the_answer(client: RawKafka, topic: str, acks: int) -> None:
    for number in range(20):
        assert produce_one(client, topic, batch_of([b"%d" % number]), acks=acks).error_code == 0
        found = client.fetch(topic, 0, number)
        assert found.high_watermark == number + 1
        assert [record.value for record in read_records(found.records or b"")] == [b"%d" % number]


@pytest.mark.requirement("R4.51")
@pytest.mark.trap(23)
def test_acks_none_gets_no_answer_at_all(client: RawKafka, topic: str) -> None:
    for number in range(10):
        client.send_produce(topic, 0, batch_of([b"%d" % number]), acks=0)
    # The next answer on the connection is that of the next request that has one.
    assert produce_one(client, topic, batch_of([b"last"])).base_offset == 10
    assert [record.value for record in client.read_all(topic, 0)] == [
        *(b"%d" % number for number in range(10)),
        b"last",
    ]


@pytest.mark.requirement("R4.51", "R4.55")
@pytest.mark.trap(23)
def test_acks_none_creates_the_topic_and_keeps_its_place_in_line(client: RawKafka, name: str) -> None:
    client.send_produce(name, 0, batch_of([b"first"]), acks=0)
    assert produce_one(client, name, batch_of([b"second"])).base_offset == 1


@pytest.mark.requirement("R4.51")
@pytest.mark.trap(23)
def test_acks_none_closes_the_connection_on_an_error(node: NodeProcess, topic: str) -> None:
    with RawKafka(node.kafka) as client:
        client.send_produce(topic, 77, batch_of([b"nowhere"]), acks=0)
        assert client.socket.recv(1) == b""


@pytest.mark.trap(23)
def test_acks_none_closes_only_after_what_was_asked_before_is_answered(node: NodeProcess, topic: str) -> None:
    with RawKafka(node.kafka) as client:
        first = client.send_produce(topic, 0, batch_of([b"kept"]))
        client.send_produce(topic, 77, batch_of([b"nowhere"]), acks=0)
        assert client.read_produced(first).error_code == 0
        assert client.is_closed_by_peer()


@pytest.mark.requirement("R4.58", "C18")
@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_unknown_acks_are_refused_for_every_partition(client: RawKafka, topic: str, acks: int) -> None:
    assert_refused(produce_one(client, topic, batch_of([b"x"]), acks=acks), ErrorCode.INVALID_REQUIRED_ACKS)
    assert client.offset_at(topic, 0, LATEST) == 0


@pytest.mark.requirement("R4.61", "X4.2")
@pytest.mark.trap(26)
def test_log_start_is_told_as_it_is(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"x"] * 10))
    wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 4)])
    deleted = client.call(DeleteRecordsRequest([wanted], 5000), 2, DeleteRecordsResponse)
    assert deleted.topics[0].partitions[0].low_watermark == 4
    row = produce_one(client, topic, batch_of([b"y"]))
    assert (row.base_offset, row.log_start_offset) == (10, 4)


@pytest.mark.requirement("R4.61")
@pytest.mark.trap(18)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time_is_stamped_with_a_valid_crc(client: RawKafka, name: str, codec: Codec) -> None:
    client.create_topic(name, 1, {"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    batch = build_batch([NewRecord(value=b"x", timestamp_ms=1000), NewRecord(value=b"y")], now_ms=2000, codec=codec)
    row = produce_one(client, name, batch)
    assert before <= row.log_append_time_ms <= now_ms()
    found = stored(client, name)
    header = read_header(found)
    assert header.is_log_append_time
    assert header.max_timestamp_ms == row.log_append_time_ms
    assert crc32c(found[21:]) == header.crc
    assert {record.timestamp_ms for record in read_records(found)} == {row.log_append_time_ms}
    # Nothing else has changed: time type, newest time and checksum apart.
    assert found[61:] == bytes(batch[61:])
    assert found[23:35] == bytes(batch[23:35])


# What is refused


def _altered(position: int, layout: str, value: int) -> bytearray:
    batch = batch_of([b"one", b"two"])
    struct.pack_into(layout, batch, position, value)
    return batch


REFUSED = {
    "magic 0": (_altered(16, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (_altered(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (_altered(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "wrong crc": (_altered(17, ">I", 0xDEADBEEF), ErrorCode.CORRUPT_MESSAGE),
    "length too long": (_altered(8, ">i", 10_000), ErrorCode.INVALID_RECORD),
    "length too short": (_altered(8, ">i", 60), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (_altered(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (batch_of([b"one"]) + batch_of([b"two"]), ErrorCode.INVALID_RECORD),
    "count above deltas": (with_crc(_altered(57, ">i", 3)), ErrorCode.INVALID_RECORD),
    "count below deltas": (with_crc(_altered(57, ">i", 1)), ErrorCode.INVALID_RECORD),
    "no records counted": (with_crc(_altered(57, ">i", 0)), ErrorCode.INVALID_RECORD),
    "unknown codec": (with_crc(_altered(21, ">h", 5)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control batch": (with_crc(_altered(21, ">h", 0x20)), ErrorCode.INVALID_RECORD),
    "cut in the header": (batch_of([b"x"])[:40], ErrorCode.INVALID_RECORD),
    "empty": (bytearray(), ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
}


@pytest.mark.requirement("R4.58", "X4.2")
@pytest.mark.trap(18, 19)
@pytest.mark.parametrize("case", list(REFUSED))
def test_batch_that_breaks_the_format_is_refused_and_nothing_is_written(
    client: RawKafka, topic: str, case: str
) -> None:
    """2 is what clients retry: bytes changed on their way. 87 is what no repetition makes right."""
    batch, code = REFUSED[case]
    assert_refused(produce_one(client, topic, batch), code)
    assert client.offset_at(topic, 0, LATEST) == 0
    assert produce_one(client, topic, batch_of([b"good"])).base_offset == 0


@pytest.mark.requirement("R4.58")
@pytest.mark.trap(22)
def test_batch_above_the_topics_limit_is_message_too_large(client: RawKafka, name: str) -> None:
    client.create_topic(name, 1, {"max.message.bytes": "1000"})
    fitting = batch_of([b"x" * 500])
    largest = batch_of([b"x" * (500 + 1000 - len(fitting))])
    assert len(largest) == 1000
    assert produce_one(client, name, largest).error_code == 0
    assert_refused(produce_one(client, name, batch_of([b"x" * 1000])), ErrorCode.MESSAGE_TOO_LARGE)
    # The compressed size counts.
    small = build_batch([NewRecord(value=b"x" * 100_000)], now_ms=now_ms(), codec=Codec.ZSTD)
    assert produce_one(client, name, small).error_code == 0


@pytest.mark.trap(22)
def test_default_limit_is_kafkas(client: RawKafka, topic: str) -> None:
    overhead = len(batch_of([b"x" * 1_000_000])) - 1_000_000
    assert produce_one(client, topic, batch_of([b"x" * (1_048_588 - overhead)])).error_code == 0
    assert_refused(produce_one(client, topic, batch_of([b"x" * (1_048_589 - overhead)])), ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.trap(20)
@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_needs_version_seven(client: RawKafka, topic: str, version: int) -> None:
    batch = build_batch([NewRecord(value=b"x" * 100)], now_ms=now_ms(), codec=Codec.ZSTD)
    expected = 0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce_one(client, topic, batch, version=version).error_code == expected


@pytest.mark.requirement("R4.58", "X4.2")
@pytest.mark.trap(45)
@pytest.mark.parametrize("version", VERSIONS)
def test_errors_are_laid_out_in_the_version_of_the_request(client: RawKafka, topic: str, version: int) -> None:
    request = produce_request(topic, 5, batch_of([b"x"]), topic_id=topic_id(client, topic))
    answer = call_to_the_last_byte(client, request, version, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    assert_refused(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (row.error_message is not None) == (version >= 8)


@pytest.mark.requirement("R4.58")
def test_timestamp_too_far_ahead_is_refused(client: RawKafka, topic: str) -> None:
    late = build_batch([NewRecord(value=b"x", timestamp_ms=now_ms() + 7_200_000)], now_ms=0)
    assert_refused(produce_one(client, topic, late), ErrorCode.INVALID_TIMESTAMP)
    old = build_batch([NewRecord(value=b"x", timestamp_ms=0)], now_ms=0)
    assert produce_one(client, topic, old).error_code == 0


@pytest.mark.requirement("R4.58", "R4.63")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_compacted_topic_names_the_records_that_have_no_key(client: RawKafka, name: str, codec: Codec) -> None:
    client.create_topic(name, 1, {"cleanup.policy": "compact"})
    records = [NewRecord(key=key, value=b"v") for key in (b"a", None, b"c", None)]
    row = produce_one(client, name, build_batch(records, now_ms=now_ms(), codec=codec))
    assert_refused(row, ErrorCode.INVALID_RECORD)
    assert [each.batch_index for each in row.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in row.record_errors)
    assert row.error_message
    assert client.offset_at(name, 0, LATEST) == 0
    keyed = build_batch([NewRecord(key=b"a", value=None)], now_ms=now_ms(), codec=codec)
    assert produce_one(client, name, keyed).error_code == 0


@pytest.mark.requirement("R4.58")
@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_for_clients_to_write(client: RawKafka, topic: str, internal: str) -> None:
    if internal == "__consumer_offsets":
        # The topic comes with the first offset that is committed.
        assert commit(client, f"{topic}-group", topic, {0: 1}) == {0: 0}
        index = next(index for index in range(50) if client.offset_at(internal, index, LATEST))
        keyed = build_batch([NewRecord(key=b"not ours", value=b"v")], now_ms=now_ms())
        row = produce(client, {internal: {index: keyed}})[(internal, index)]
        assert_refused(row, ErrorCode.INVALID_TOPIC_EXCEPTION)
        # The coordinators may be writing there themselves.
        assert b"not ours" not in [record.key for record in client.read_all(internal, index, may_miss=True)]
    else:
        # Nobody asked for a transaction on this node yet, and asking for the topic does not make it.
        row = produce_one(client, internal, batch_of([b"x"]))
        assert row.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
        code = metadata(client, [internal], auto_create=True).topics[0].error_code
        assert code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.requirement("R3.1", "R4.39")
def test_a_record_stays_where_it_was_however_often_it_is_read(client: RawKafka, topic: str) -> None:
    produce_one(client, topic, batch_of([b"%d" % number for number in range(10)]))
    first = [(record.offset, record.value) for record in client.read_all(topic, 0)]
    assert first == [(number, b"%d" % number) for number in range(10)]
    assert [(record.offset, record.value) for record in client.read_all(topic, 0)] == first
    assert client.offset_at(topic, 0, EARLIEST) == 0
