"""Every RustLog message survives a round trip; every kind of nonsense gets the right kind of error."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import (
    InvalidRequest,
    decode_request,
    decode_response,
    encode,
    encode_frame,
    frame_reader,
)
from headrace.wire.rustlog.codes import FRAME_BYTES_MAX

REQUESTS: list[m.Request] = [
    m.Produce(topic="logs", partition=0, records=[b"", b"\x00\xff", b"hello"]),
    m.Fetch(group_id="g", topic="logs", partition=2**32 - 1, offset=2**64 - 1, max_bytes=2**64 - 1),
    m.OffsetCommit(group="g", topic="logs", partition=0, offset=7),
    m.OffsetFetch(group="g", topic="logs", partition=0),
    m.CreateTopic(topic="logs", partition_count=1000),
    m.ListTopics(),
    m.DescribeTopic(topic="logs"),
    m.DescribePartition(topic="logs", partition=3),
    m.MetricsFetch(),
    m.Ping(),
]
RESPONSES: list[m.Response] = [
    m.ProduceResponse(base_offset=42, record_count=2),
    m.FetchResponse(records=[m.FetchedRecord(offset=1, timestamp=2, payload=b"x")], next_offset=2),
    m.FetchResponse(records=[], next_offset=9),
    m.OffsetCommitResponse(success=False),
    m.OffsetFetchResponse(offset=None),
    m.CreateTopicResponse(success=True, partitions_created=3),
    m.ListTopicsResponse(topics=[m.TopicSummary(name="logs", partition_count=1)]),
    m.DescribeTopicResponse(
        topic="logs",
        partitions=[m.PartitionDescription(partition=0, high_watermark=5, log_start_offset=1, segment_count=1)],
    ),
    m.DescribePartitionResponse(topic="logs", partition=0, high_watermark=5, log_start_offset=1, segment_count=1),
    m.MetricsFetchResponse(
        metrics={"a_total": 1.0},
        consumer_lag=[m.ConsumerLag(group="g", topic="t", partition=0, lag=2)],
        text="# HELP\n",
    ),
    m.Pong(),
    m.Error(code=404, message="Topic 'x' not found", details={"available_topics": []}),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests_round_trip(request_: m.Request) -> None:
    assert decode_request(encode(request_)[4:]) == request_


@pytest.mark.parametrize("response", RESPONSES, ids=lambda r: type(r).__name__)
def test_responses_round_trip(response: m.Response) -> None:
    assert decode_response(encode(response)[4:]) == response


@given(records=st.lists(st.binary(max_size=200), max_size=20), topic=st.text(max_size=20))
def test_any_bytes_and_any_text_round_trip(records: list[bytes], topic: str) -> None:
    topic = topic.encode("utf-8", "ignore").decode()
    request = m.Produce(topic=topic, partition=0, records=records)
    assert decode_request(encode(request)[4:]) == request


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"42",
        b'{"type":"Ping"} trailing',
        b'{"type":"Ping",}',
        b'{"type":"Nope", garbage',
        b'{"type":"Ping","x":"\xff"}',
        b'{"\xff":1,"type":"Ping"}',
        b'{"type":"Produce","topic":"\xc3\x28","partition":0,"records":[]}',
        b'\xef\xbb\xbf{"type":"Ping"}',
        b'{"type":"Ping","x":"\\ud83d"}',
        b'{"type":"Ping","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b"[" * 200_000,
    ],
    ids=lambda payload: payload[:24].decode("latin-1"),
)
def test_what_is_not_a_json_object_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_request(payload)


@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        '{"type":null}',
        '{"type":1}',
        '{"type":"ping"}',
        '{"type":"Teleport"}',
        '{"type":"Produce"}',
        '{"type":"Produce","topic":1,"partition":0,"records":[]}',
        '{"type":"Produce","topic":"a","partition":-1,"records":[]}',
        '{"type":"Produce","topic":"a","partition":4294967296,"records":[]}',
        '{"type":"Produce","topic":"a","partition":"0","records":[]}',
        '{"type":"Produce","topic":"a","partition":0.5,"records":[]}',
        '{"type":"Produce","topic":"a","partition":0,"records":"SGVsbG8="}',
        '{"type":"Produce","topic":"a","partition":0,"records":[null]}',
        '{"type":"Produce","topic":"a","partition":0,"records":["SGVsbG8"]}',
        '{"type":"Produce","topic":"a","partition":0,"records":["_-=="]}',
        '{"type":"Fetch","group_id":"g","topic":"a","partition":0,"offset":18446744073709551616,"max_bytes":1}',
        '{"type":"Fetch","group_id":"g","topic":"a","partition":0,"offset":1,"max_bytes":-1}',
        '{"type":"OffsetCommit","group":"g","topic":"a","partition":0,"offset":18446744073709551616}',
        '{"type":"Pong"}',
    ],
)
def test_a_wrong_field_is_invalid_but_not_malformed(payload: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_request(payload.encode())


def test_frames_over_the_limit_are_neither_written_nor_read() -> None:
    with pytest.raises(TooLarge):
        encode_frame(bytes(FRAME_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        encode_frame(b"")
    with pytest.raises(TooLarge):
        encode(m.Produce(topic="t", partition=0, records=[bytes(8_000_000)]))
    reader = frame_reader()
    reader.receive(encode_frame(bytes(FRAME_BYTES_MAX)))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame.payload) == FRAME_BYTES_MAX


def test_the_tag_is_the_first_field_on_the_wire() -> None:
    assert encode(m.Pong())[4:] == b'{"type":"Pong"}'
    assert list(msgspec.json.decode(encode(RESPONSES[0])[4:])) == ["type", "base_offset", "record_count"]
