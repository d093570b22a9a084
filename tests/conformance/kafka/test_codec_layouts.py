"""Byte layouts of seed 004, as settled by resolutions C53 to C58: bytes written by hand on one side, the codec on the
other."""

import pytest

from headrace.records.batch import bytes_of
from headrace.wire.kafka import fetch, produce
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import RequestHeader, encode_response, read_request_header
from headrace.wire.kafka.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from headrace.wire.kafka.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.wire.kafka.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.wire.kafka.messages.fetch_request import FetchRequest
from headrace.wire.kafka.messages.produce_request import ProduceRequest

TOPIC_ID = bytes(range(16))
ID = TOPIC_ID.hex()


def octets(*pieces: str) -> bytes:
    return bytes.fromhex(" ".join(pieces))


# ApiVersions


@pytest.mark.requirement("R4.2", "R4.3", "R4.4", "R4.17", "R4.18", "R4.19", "R4.20", "R4.21")
@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_of_one_api_is_nineteen_bytes(version: int) -> None:
    frame = encode_response(ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)]), version, -7)
    assert frame == octets(
        "00000013",  # size
        "fffffff9",  # correlation id, and no tags behind it
        "0000",  # error code
        "02",  # one entry
        "0012 0000 0004 00",  # key 18, v0 to v4, no tags
        "00000000",  # throttle time
        "00",  # no tags
    )


@pytest.mark.requirement("R4.20")
def test_api_versions_of_four_apis_is_forty_bytes() -> None:
    apis = [ApiVersion(0, 0, 11), ApiVersion(1, 4, 16), ApiVersion(18, 0, 4), ApiVersion(75, 0, 0)]
    assert encode_response(ApiVersionsResponse(api_keys=apis), 4, 7)[:4] == octets("00000028")


@pytest.mark.requirement("R4.22")
@pytest.mark.parametrize(("version", "throttle"), [(0, ""), (1, "00000000"), (2, "00000000")])
def test_api_versions_before_v3_uses_plain_arrays(version: int, throttle: str) -> None:
    frame = encode_response(ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)]), version, 7)
    assert frame[4:] == octets("00000007 0000 00000001 0012 0000 0004", throttle)


@pytest.mark.requirement("R4.23")
@pytest.mark.trap(2)
def test_api_versions_refusal_is_written_as_v0() -> None:
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])
    frame = encode_response(refusal, 0, 7)
    assert frame == octets("00000010", "00000007", "0023", "00000001", "0012 0000 0004")


# Headers


@pytest.mark.requirement("R4.1", "R4.2", "R4.4", "R4.5", "R4.6", "X4.3")
def test_request_header_of_a_flexible_version() -> None:
    frame = octets("004b", "0000", "6f7fc661", "0009 6b61666b612d636c69", "02 05 00 63 02 abcd")
    assert read_request_header(memoryview(frame)) == RequestHeader(75, 0, 0x6F7FC661, "kafka-cli", len(frame))


@pytest.mark.requirement("R4.1", "R4.5", "X4.3")
def test_request_header_of_a_plain_version_has_no_tags() -> None:
    frame = octets("0012", "0002", "ffffffff", "ffff")
    assert read_request_header(memoryview(frame)) == RequestHeader(18, 2, -1, None, 10)


# DescribeTopicPartitions


@pytest.mark.requirement("R4.26")
def test_describe_topic_partitions_request() -> None:
    names = "03 04 666f6f 00 04 626172 00"
    without_cursor = octets(names, "00000064", "ff", "00")
    assert DescribeTopicPartitionsRequest.decode(without_cursor, 0) == DescribeTopicPartitionsRequest(
        [TopicRequest("foo"), TopicRequest("bar")], 100, None
    )
    with_cursor = octets(names, "00000064", "01 04 626172 00000002 00", "00")
    assert DescribeTopicPartitionsRequest.decode(with_cursor, 0).cursor == Cursor("bar", 2)


@pytest.mark.requirement("R4.30", "R4.31", "R4.32", "X4.3")
def test_describe_topic_partitions_response() -> None:
    partition = DescribeTopicPartitionsResponsePartition(
        error_code=0,
        partition_index=1,
        leader_id=2,
        leader_epoch=3,
        replica_nodes=[2, 4],
        isr_nodes=[2],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[4],
    )
    topic = DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name="foo",
        topic_id=TOPIC_ID,
        is_internal=False,
        partitions=[partition],
        topic_authorized_operations=0xDF8,
    )
    frame = encode_response(DescribeTopicPartitionsResponse(topics=[topic]), 0, 7)
    assert frame[4:] == octets(
        "00000007 00",  # correlation id, header tags
        "00000000",  # throttle time
        "02",  # one topic
        "0000 04 666f6f",  # error code, name
        ID,
        "00",  # is internal
        "02",  # one partition
        "0000 00000001 00000002 00000003",  # error code, index, leader, leader epoch
        "03 00000002 00000004",  # replicas
        "02 00000002",  # in sync
        "01",  # eligible leader replicas
        "01",  # last known ELR
        "02 00000004",  # offline
        "00",  # partition tags
        "00000df8 00",  # authorized operations, topic tags
        "ff",  # no next cursor
        "00",  # tags
    )


# Fetch


@pytest.mark.requirement("R4.35", "R4.36", "R4.37")
@pytest.mark.parametrize("version", [13, 14])
def test_fetch_request_with_replica_and_topic_ids(version: int) -> None:
    body = octets(
        "ffffffff 000001f4 00000001 03200000 01",  # replica, max wait, min bytes, max bytes, isolation
        "00000009 0000000a",  # session id and epoch
        "02",
        ID,
        "02 00000005 00000006 0000000000000007 ffffffff 0000000000000008 00100000 00",
        "00",
        "02",  # forgotten
        ID,
        "02 00000003 00",
        "03 6575",  # rack
        "01 63 01 ff",  # a tag nobody knows
    )
    call = fetch.read_fetch(memoryview(body), 0, version)
    assert call == fetch.FetchCall(
        -1,
        500,
        1,
        0x03200000,
        1,
        9,
        10,
        [fetch.FetchTopic(TOPIC_ID, [fetch.FetchPartition(5, 6, 7, -1, 8, 0x100000)])],
        [fetch.ForgottenTopic(TOPIC_ID, [3])],
        "eu",
    )
    generated = FetchRequest.decode(body, version)
    assert (generated.replica_id, generated.max_wait_ms, generated.isolation_level) == (-1, 500, 1)
    assert generated.forgotten_topics_data[0].partitions == [3]


@pytest.mark.requirement("R4.44", "R4.45", "R4.46", "X4.3")
@pytest.mark.parametrize("version", [13, 14, 15, 16, 17])
def test_fetch_response(version: int) -> None:
    row = fetch.FetchedPartition(
        5,
        high_watermark=100,
        last_stable_offset=99,
        log_start=1,
        records=[b"abc", b"def"],
        records_size=6,
        aborted=[fetch.AbortedTransaction(11, 12)],
    )
    parts = fetch.encode_fetched(version, 7, [fetch.FetchedTopic(TOPIC_ID, [row])], session_id=9)
    body = octets(
        "00000007 00",  # correlation id, header tags
        "00000000 0000 00000009",  # throttle time, error code, session id
        "02",
        ID,
        "02",
        "00000005 0000",  # index, error code
        "0000000000000064 0000000000000063 0000000000000001",  # high watermark, last stable, log start
        "02 000000000000000b 000000000000000c 00",  # aborted transactions
        "ffffffff",  # preferred read replica
        "07 616263646566",  # records
        "00 00 00",  # tags of partition, topic, response
    )
    assert b"".join(map(bytes_of, parts)) == len(body).to_bytes(4, "big") + body


# Produce


@pytest.mark.requirement("R4.49", "R4.50")
@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_request(version: int) -> None:
    body = octets(
        "03 7478",  # transactional id
        "ffff 00007530",  # acks, timeout
        "02 04 666f6f",  # one topic, its name
        "02 00000001 05 deadbeef 00",  # one partition, its records, its tags
        "00 00",  # tags of topic, request
    )
    call = produce.read_produce(memoryview(body), 0, version)
    assert call == produce.ProduceCall(
        "tx",
        -1,
        30_000,
        [produce.TopicRecords("foo", [produce.PartitionRecords(1, memoryview(b"\xde\xad\xbe\xef"))])],
    )
    assert ProduceRequest.decode(body, version).topic_data[0].partition_data[0].records == b"\xde\xad\xbe\xef"


@pytest.mark.requirement("R4.49")
def test_produce_request_without_a_transactional_id() -> None:
    assert produce.read_produce(memoryview(octets("00 0001 000003e8 01 00")), 0, 9).transactional_id is None
    assert produce.read_produce(memoryview(octets("ffff 0001 000003e8 00000000")), 0, 8).transactional_id is None


@pytest.mark.requirement("R4.59", "R4.60", "R4.61", "X4.3")
@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_produce_response(version: int) -> None:
    stored = produce.ProducedPartition(1, 0, base_offset=42, append_time_ms=-1, log_start=3)
    refused = produce.ProducedPartition(2, 87, error_message="no", record_errors=[(4, "bad")])
    frame = produce.encode_produced(version, 7, [produce.ProducedTopic("foo", [stored, refused])])
    body = octets(
        "00000007 00",  # correlation id, header tags
        "02 04 666f6f 03",  # one topic, two partitions
        "00000001 0000 000000000000002a ffffffffffffffff 0000000000000003 01 00 00",
        "00000002 0057 ffffffffffffffff ffffffffffffffff ffffffffffffffff",
        "02 00000004 04 626164 00",  # record errors
        "03 6e6f 00",  # error message, tags
        "00",  # tags of the topic
        "00000000 00",  # throttle time, tags
    )
    assert frame == len(body).to_bytes(4, "big") + body
