"""Logjam as frames: the meta frame's bytes, names, topics, replies, compression, and what a client must do."""

import gzip
import json
import zlib

import pytest
import snappy

from headrace.errors import InvalidName, MalformedRequest, UnsupportedCompression
from headrace.wire.logjam.compression import Compression, decompress
from headrace.wire.logjam.messages import (
    ACCEPTED,
    BAD_REQUEST,
    build_data,
    build_heartbeat,
    build_ping,
    build_pong,
    open_envelope,
    parse_data,
)
from headrace.wire.logjam.meta import SEQUENCE_MAX, Meta, decode_meta, encode_meta
from headrace.wire.logjam.names import is_topic, parse_stream
from headrace.wire.logjam.payload import decode_request
from headrace.wire.logjam.sequence import GapDetector, SequenceNumbers

META = Meta(compression=2, device_number=7, created_ms=1_470_900_000_123, sequence=42)
LONG = bytes.fromhex("cabd020100000007000001567878d57b000000000000002a")
SHORT = bytes.fromhex("cabd02010007000001567878d57b000000000000002a")


@pytest.mark.requirement("R2.28", "R2.29", "R2.31", "R2.32", "R2.33", "R2.34")
def test_the_meta_frame_byte_by_byte() -> None:
    assert encode_meta(META) == LONG
    assert len(LONG) == 24
    assert decode_meta(LONG) == META
    assert len(SHORT) == 22
    assert decode_meta(SHORT) == META
    swapped = b"\xbd\xca" + LONG[2:]
    assert decode_meta(swapped) == META


@pytest.mark.requirement("R2.31", "R2.35")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        LONG[:23],
        LONG + b"\0",
        SHORT[:21],
        b"\xca\xbe" + LONG[2:],
        LONG[:3] + b"\x02" + LONG[4:],
        LONG[:3] + b"\0" + LONG[4:],
    ],
)
def test_a_wrong_tag_length_or_version_is_invalid(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_meta(frame)


@pytest.mark.requirement("R2.9", "R2.10", "R2.11", "R2.18")
def test_only_an_empty_first_frame_asks_for_a_reply() -> None:
    data = build_data(b"myapp-production", b"logs", b"{}", META)
    assert data[0] == b"myapp-production"
    assert len(data) == 4
    assert open_envelope(data) == (False, data)
    assert open_envelope([b"", *data]) == (True, data)
    assert parse_data(data).meta == META


@pytest.mark.requirement("R2.12")
def test_reply_texts() -> None:
    assert (ACCEPTED, BAD_REQUEST) == (b"202 Accepted", b"400 Bad Request")


@pytest.mark.requirement("R2.19", "R2.20")
def test_app_env_names() -> None:
    assert parse_stream(b"myapp-production") == ("myapp", "production")
    assert parse_stream(b"myapp-production", is_strict=True) == ("myapp", "production")
    assert parse_stream(b"my-app_2-prod1") == ("my-app_2", "prod1")
    for bad in (b"", b"myapp", b"-production", b"myapp-", b"m\x80-p"):
        with pytest.raises(InvalidName):
            parse_stream(bad)
    for bad in (b"my-app-production", b"app2-production", b"app-prod_1", b"app -x"):
        with pytest.raises(InvalidName):
            parse_stream(bad, is_strict=True)


@pytest.mark.requirement("R2.21", "R2.22", "R2.23", "R2.24", "R2.25")
def test_topics() -> None:
    for topic in (b"logs", b"logs.myapp.production", b"javascript.a", b"events", b"frontend.page", b"frontend.ajax"):
        assert is_topic(topic)
        assert is_topic(topic, is_strict=True)
    for topic in (b"logs-2", b"mobile", b"logs.app_1"):
        assert is_topic(topic)
        assert not is_topic(topic, is_strict=True)
    for topic in (b"", b"log", b"metrics", b"frontend", b"frontend.img", b"Logs", b"logs\x00", b"heartbeat"):
        assert not is_topic(topic)


@pytest.mark.requirement("R2.26", "R2.30", "R2.36", "R2.37", "X2.3")
def test_compressed_bodies_decompress_to_the_same_json() -> None:
    body = json.dumps({"action": "Home#index", "lines": [[1, "t", "x" * 500]]}).encode()
    assert [method.value for method in Compression] == [0, 1, 2, 3]
    lz4 = b"\x00\x00\x00\x05" + b"\x50hello"
    assert decompress(3, lz4, bytes_max=100) == b"hello"
    for method, compressed in (
        (0, body),
        (1, zlib.compress(body)),
        (1, gzip.compress(body)),
        (2, snappy.compress(body)),
    ):
        assert decompress(method, compressed, bytes_max=10_000) == body


@pytest.mark.requirement("R2.38")
def test_an_unknown_compression_is_undecodable() -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(9, b"{}", bytes_max=100)


@pytest.mark.requirement("R2.39", "R2.40")
def test_clients_number_from_one_and_start_again() -> None:
    numbers = SequenceNumbers()
    assert [numbers.next() for _ in range(3)] == [1, 2, 3]
    numbers.last = SEQUENCE_MAX
    assert numbers.next() == 1


@pytest.mark.requirement("R2.43")
def test_second_resolution_is_accepted() -> None:
    frame = encode_meta(Meta(created_ms=1_470_900_000_000, sequence=1))
    assert decode_meta(frame).created_ms == 1_470_900_000_000


LOG_REQUEST = {
    "action": "Home#index",
    "started_at": "2016-08-11T10:00:00+02:00",
    "started_ms": 1_470_900_000_000,
    "total_time": 12.5,
    "code": 200,
    "severity": 2,
    "request_id": "0123456789abcdef0123456789abcdef",
    "lines": [[1, "2016-08-11T10:00:00.000001", "hi"], [3, "2016-08-11T10:00:00.000002", "oh"]],
    "exceptions": ["RuntimeError"],
    "request_info": {"method": "GET", "url": "/", "headers": {"Host": "x"}},
}


@pytest.mark.requirement("R2.45", "X2.1")
def test_the_json_payload_of_log_messages() -> None:
    request = decode_request(json.dumps(LOG_REQUEST).encode())
    assert (request.action, request.code, request.effective_severity()) == ("Home#index", 200, 2)
    assert request.request_info is not None
    assert request.request_info.method == "GET"
    for field in ("action", "started_at", "started_ms", "total_time", "code", "request_id"):
        without = {key: value for key, value in LOG_REQUEST.items() if key != field}
        with pytest.raises(MalformedRequest, match=field):
            decode_request(json.dumps(without).encode())
    for bad in ({"severity": 6}, {"request_id": "short"}, {"lines": "x"}, {"total_time": "12"}):
        with pytest.raises(MalformedRequest):
            decode_request(json.dumps(LOG_REQUEST | bad).encode())


@pytest.mark.requirement("X2.1")
def test_severity_falls_back_to_the_lines_and_then_to_one() -> None:
    without = {key: value for key, value in LOG_REQUEST.items() if key != "severity"}
    assert decode_request(json.dumps(without).encode()).effective_severity() == 3
    assert decode_request(json.dumps(without | {"lines": []}).encode()).effective_severity() == 1


@pytest.mark.requirement("X2.2")
def test_ping_frames() -> None:
    assert build_ping(b"a-b", META)[:4] == [b"", b"ping", b"a-b", b"{}"]
    assert build_pong("log.example.com") == [b"ping", b"200 OK", b"log.example.com"]


@pytest.mark.requirement("X2.5")
def test_heartbeat_frames() -> None:
    frames = build_heartbeat("tcp://log.example.com:9606", META)
    assert frames == [b"heartbeat", b"tcp://log.example.com:9606", b"{}", LONG]


@pytest.mark.requirement("X2.6")
def test_gaps_by_device_number() -> None:
    gaps = GapDetector()
    assert [gaps.observe(3, n, now_ms=0) for n in (1, 2, 5, 1)] == [0, 0, 2, 0]
    assert gaps.observe(0, 1, now_ms=0) + gaps.observe(0, 9, now_ms=0) == 0
    assert gaps.stale_devices(now_ms=30_001) == [3]
