"""RustLog as bytes: frames, payload rules, the codes, and the document's own examples."""

import itertools
import json
import struct

import pytest

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.framing import EmptyFrame, IncompleteFrame
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import (
    InvalidRequest,
    decode_request,
    decode_response,
    encode,
    encode_frame,
    frame_reader,
)
from headrace.wire.rustlog.codes import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    LENGTH_FIELD_SIZE,
    TRANSITIONS,
    ConnectionState,
    ErrorCode,
    RequestCode,
    ResponseCode,
    is_client_error,
    response_code,
)

EXAMPLE = b'{"type":"Produce","topic":"logs","partition":0,"records":["SGVsbG8gV29ybGQ="]}'


@pytest.mark.requirement("R0.1", "R0.2", "R0.6", "R0.15")
def test_the_example_frame_with_its_true_length() -> None:
    frame = b"\x00\x00\x00\x4e" + EXAMPLE
    reader = frame_reader()
    reader.receive(frame)
    found = reader.next_frame()
    assert found is not None
    assert decode_request(found.payload) == m.Produce(topic="logs", partition=0, records=[b"Hello World"])
    assert encode(m.Produce(topic="logs", partition=0, records=[b"Hello World"])) == frame


@pytest.mark.requirement("R0.15")
def test_the_example_frame_with_the_printed_length_is_cut_and_malformed() -> None:
    reader = frame_reader()
    reader.receive(b"\x00\x00\x00\x4a" + EXAMPLE)
    found = reader.next_frame()
    assert found is not None
    assert found.payload == EXAMPLE[:74]
    with pytest.raises(MalformedRequest):
        decode_request(found.payload)


@pytest.mark.requirement("R0.3", "R0.4", "R0.5", "R0.6", "R0.105")
def test_frame_limits() -> None:
    assert (FRAME_BYTES_MAX, FRAME_BYTES_MIN, LENGTH_FIELD_SIZE) == (10_485_760, 1, 4)
    reader = frame_reader()
    reader.receive(struct.pack(">I", FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX))
    found = reader.next_frame()
    assert found is not None
    assert len(found.payload) == FRAME_BYTES_MAX
    for length, error in ((FRAME_BYTES_MAX + 1, TooLarge), (2**32 - 1, TooLarge), (0, EmptyFrame)):
        reader = frame_reader()
        reader.receive(struct.pack(">I", length))
        with pytest.raises(error):
            reader.next_frame()


@pytest.mark.requirement("R0.7")
def test_frames_are_reassembled_and_kept_in_order() -> None:
    stream = b"".join(encode(m.DescribeTopic(topic=f"t{number}")) for number in range(5))
    reader, topics = frame_reader(), []
    for byte in stream:
        reader.receive(bytes([byte]))
        while (frame := reader.next_frame()) is not None:
            topics.append(decode_request(frame.payload))
    reader.receive(stream)
    while (frame := reader.next_frame()) is not None:
        topics.append(decode_request(frame.payload))
    assert topics == [m.DescribeTopic(topic=f"t{number}") for number in range(5)] * 2


@pytest.mark.requirement("R0.8")
def test_no_frame_over_the_limit_is_ever_built() -> None:
    with pytest.raises(TooLarge):
        encode(
            m.FetchResponse(records=[m.FetchedRecord(offset=0, timestamp=0, payload=bytes(8_000_000))], next_offset=1)
        )
    with pytest.raises(TooLarge):
        encode_frame(bytes(FRAME_BYTES_MAX + 1))


@pytest.mark.requirement("R0.9")
@pytest.mark.parametrize("cut", [1, 3, 4, 10])
def test_an_end_inside_a_frame_is_no_request(cut: int) -> None:
    reader = frame_reader()
    reader.receive(encode(m.Ping())[:cut])
    assert reader.next_frame() is None
    with pytest.raises(IncompleteFrame):
        reader.finish()


@pytest.mark.requirement("R0.10", "R0.11", "R0.12")
def test_payloads_are_utf8_json_objects_with_a_type() -> None:
    for bad in (b"\xff\xfe", b"{]", b"[1]", b'"Ping"'):
        with pytest.raises(MalformedRequest):
            decode_request(bad)
    for untyped in (b"{}", b'{"type":7}'):
        with pytest.raises(InvalidRequest):
            decode_request(untyped)
    assert decode_request(b' { "type" : "Ping" } ') == m.Ping()
    assert json.loads(encode(m.OffsetCommitResponse(success=True))[4:])["type"] == "OffsetCommitResponse"


@pytest.mark.requirement("R0.13", "R0.27")
def test_records_travel_as_base64_only() -> None:
    every_byte = bytes(range(256))
    payload = json.loads(encode(m.Produce(topic="t", partition=0, records=[every_byte, b""]))[4:])
    assert payload["records"][1] == ""
    assert set(payload["records"][0]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert decode_request(json.dumps(payload).encode()) == m.Produce(topic="t", partition=0, records=[every_byte, b""])


@pytest.mark.requirement("R0.14", "R0.100")
def test_unknown_fields_are_tolerated_both_ways() -> None:
    assert decode_request(b'{"type":"Ping","trace":{"id":[1,2]}}') == m.Ping()
    assert decode_response(b'{"type":"Pong","since":"2027"}') == m.Pong()
    future = decode_response(b'{"type":"Error","code":429,"message":"slow down","details":{"ms":[5]},"x":1}')
    assert future == m.Error(code=429, message="slow down", details={"ms": [5]})


@pytest.mark.requirement("R0.16", "R0.17", "R0.18", "R0.19", "R0.20")
def test_the_codes() -> None:
    requests = "Produce Fetch OffsetCommit OffsetFetch CreateTopic ListTopics DescribeTopic DescribePartition"
    names = [*requests.split(), "MetricsFetch", "Ping"]
    assert {code.name: code.value for code in RequestCode} == {name: n + 1 for n, name in enumerate(names)}
    answers = [f"{name}Response" for name in names[:-1]] + ["Pong"]
    expected = {name: 0x81 + n for n, name in enumerate(answers)} | {"Error": 0xFF}
    assert {code.name: code.value for code in ResponseCode} == expected
    assert [response_code(code) for code in RequestCode] == list(ResponseCode)[:-1]
    # Each name is a message, tagged with it.
    for name in [*names, *expected]:
        assert getattr(m, name).__struct_config__.tag == name


@pytest.mark.requirement("R0.21", "R0.22")
def test_requests_without_fields_are_bare() -> None:
    for message, text in ((m.ListTopics(), "ListTopics"), (m.MetricsFetch(), "MetricsFetch"), (m.Ping(), "Ping")):
        assert encode(message)[4:] == b'{"type":"%s"}' % text.encode()
    assert encode(m.Pong()) == b'\x00\x00\x00\x0f{"type":"Pong"}'


@pytest.mark.requirement("R0.25", "R0.39", "R0.40", "R0.55", "R0.63", "R0.65")
def test_the_documents_request_examples() -> None:
    produce = """{"type": "Produce", "topic": "user-events", "partition": 0, "records": [
        "eyJ1c2VyIjoiYWxpY2UiLCJhY3Rpb24iOiJsb2dpbiJ9", "eyJ1c2VyIjoiYm9iIiwiYWN0aW9uIjoic2lnbnVwIn0="]}"""
    assert decode_request(produce.encode()) == m.Produce(
        topic="user-events",
        partition=0,
        records=[b'{"user":"alice","action":"login"}', b'{"user":"bob","action":"signup"}'],
    )
    fetch = b"""{"type": "Fetch", "group_id": "analytics-consumer", "topic": "user-events", "partition": 0,
        "offset": 100, "max_bytes": 1048576}"""
    assert decode_request(fetch) == m.Fetch(
        group_id="analytics-consumer", topic="user-events", partition=0, offset=100, max_bytes=1_048_576
    )
    commit = b"""{"type": "OffsetCommit", "group": "analytics-pipeline", "topic": "user-events",
        "partition": 0, "offset": 150}"""
    assert decode_request(commit) == m.OffsetCommit(
        group="analytics-pipeline", topic="user-events", partition=0, offset=150
    )
    with pytest.raises(InvalidRequest):
        decode_request(commit.replace(b'"group"', b'"group_id"'))
    assert decode_request(b'{"type":"OffsetFetch","group":"g","topic":"t","partition":1}') == m.OffsetFetch(
        group="g", topic="t", partition=1
    )
    assert decode_request(b'{"type":"CreateTopic","topic":"t","partition_count":3}') == m.CreateTopic(
        topic="t", partition_count=3
    )


@pytest.mark.requirement("R0.34", "R0.47", "R0.48", "R0.61", "R0.64", "R0.69", "R0.71", "R0.73", "R0.74")
def test_the_documents_response_examples_field_by_field() -> None:
    def shown(message: m.Response) -> object:
        return json.loads(encode(message)[4:])

    assert shown(m.ProduceResponse(base_offset=42, record_count=2)) == {
        "type": "ProduceResponse",
        "base_offset": 42,
        "record_count": 2,
    }
    fetched = [
        m.FetchedRecord(offset=100, timestamp=1641024000000000, payload=b'{"user":"alice"}'),
        m.FetchedRecord(offset=101, timestamp=1641024001000000, payload=b'{"user":"bob"}'),
    ]
    assert shown(m.FetchResponse(records=fetched, next_offset=102)) == {
        "type": "FetchResponse",
        "records": [
            {"offset": 100, "timestamp": 1641024000000000, "payload": "eyJ1c2VyIjoiYWxpY2UifQ=="},
            {"offset": 101, "timestamp": 1641024001000000, "payload": "eyJ1c2VyIjoiYm9iIn0="},
        ],
        "next_offset": 102,
    }
    assert shown(m.OffsetCommitResponse(success=True)) == {"type": "OffsetCommitResponse", "success": True}
    assert shown(m.OffsetFetchResponse(offset=None)) == {"type": "OffsetFetchResponse", "offset": None}
    assert shown(m.CreateTopicResponse(success=True, partitions_created=3)) == {
        "type": "CreateTopicResponse",
        "success": True,
        "partitions_created": 3,
    }
    assert shown(m.ListTopicsResponse(topics=[m.TopicSummary(name="a", partition_count=2)])) == {
        "type": "ListTopicsResponse",
        "topics": [{"name": "a", "partition_count": 2}],
    }
    partition = m.PartitionDescription(partition=0, high_watermark=9, log_start_offset=1, segment_count=2)
    assert shown(m.DescribeTopicResponse(topic="a", partitions=[partition])) == {
        "type": "DescribeTopicResponse",
        "topic": "a",
        "partitions": [{"partition": 0, "high_watermark": 9, "log_start_offset": 1, "segment_count": 2}],
    }


@pytest.mark.requirement("R0.79", "R0.80", "R0.84")
def test_errors_and_their_codes() -> None:
    assert {code.value for code in ErrorCode} == {400, 404, 405, 413, 416, 500, 503, 507}
    assert [is_client_error(code) for code in (400, 404, 405, 413, 416, 500, 503, 507)] == [True] * 5 + [False] * 3
    assert json.loads(encode(m.Error(code=500, message="x"))[4:]) == {
        "type": "Error",
        "code": 500,
        "message": "x",
        "details": None,
    }
    example = b"""{"type": "Error", "code": 416, "message": "Offset 5000 out of range",
        "details": {"valid_range": {"start": 0, "end": 1250}, "high_watermark": 1250}}"""
    error = decode_response(example)
    assert isinstance(error, m.Error)
    assert error.details == {"valid_range": {"start": 0, "end": 1250}, "high_watermark": 1250}


@pytest.mark.requirement("R0.86", "R0.87")
def test_connection_states_and_their_transitions() -> None:
    s = ConnectionState
    assert [state.name for state in s] == ["TCP_CONNECTING", "CONNECTED", "REQUEST_ACTIVE", "ERROR", "CLOSED"]
    path = [s.TCP_CONNECTING, s.CONNECTED, s.REQUEST_ACTIVE, s.CONNECTED, s.CLOSED]
    assert all(after in TRANSITIONS[before] for before, after in itertools.pairwise(path))
    # A violation ends the connection; the drawing's arrow back to CONNECTED is not taken.
    assert s.ERROR in TRANSITIONS[s.CONNECTED]
    assert s.ERROR in TRANSITIONS[s.REQUEST_ACTIVE]
    assert TRANSITIONS[s.ERROR] == {s.CLOSED}
    assert TRANSITIONS[s.CLOSED] == frozenset()


@pytest.mark.requirement("R0.104")
def test_the_documents_serialisation_test() -> None:
    request = m.Produce(topic="test", partition=0, records=[b"hello", b"world"])
    assert decode_request(encode(request)[4:]) == request


@pytest.mark.requirement("R0.110")
@pytest.mark.parametrize("topic", ["t\u00f6pic", "\u65e5\u672c", "\U0001f600", 'a"b\\c', "tab\there", "\u0000"])
def test_text_of_every_kind_survives(topic: str) -> None:
    request = m.DescribeTopic(topic=topic)
    assert decode_request(encode(request)[4:]) == request
    escaped = json.dumps({"type": "DescribeTopic", "topic": topic}, ensure_ascii=True)
    assert decode_request(escaped.encode()) == request
