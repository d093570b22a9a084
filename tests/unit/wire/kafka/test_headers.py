"""Request and response headers, and the tables that decide their shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kafka_messages import every_version, sample

from headrace.errors import MalformedRequest
from headrace.wire.coordination.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.coordination.versioned import BODY_AT, encode_versioned, read_version
from headrace.wire.kafka.api_keys import FLEXIBLE_FROM, NEVER, ApiKey
from headrace.wire.kafka.headers import (
    RequestHeader,
    encode_request,
    encode_response,
    has_tagged_response_header,
    read_request_header,
    read_response_header,
    read_routing,
)
from headrace.wire.kafka.messages import REQUESTS, RESPONSES

ON_THE_WIRE = [(name, version) for name, version in every_version() if name.endswith(("Request", "Response"))]


def test_flexible_versions_are_those_of_the_messages() -> None:
    assert {int(key) for key in ApiKey} == REQUESTS.keys()
    for key, request in REQUESTS.items():
        assert FLEXIBLE_FROM[key] == (NEVER if request.FLEXIBLE_FROM is None else request.FLEXIBLE_FROM)


@pytest.mark.requirement("R4.1", "R4.2", "R4.4", "R4.5", "X4.3")
@pytest.mark.parametrize(("name", "version"), [row for row in ON_THE_WIRE if row[0].endswith("Request")])
def test_request_header_round_trips(name: str, version: int) -> None:
    request = sample(name, version, "full")
    for correlation_id in (0, 7, -1, 2**31 - 1, -(2**31)):
        for client_id in (None, "", "rdkafka", "é" * 100):
            frame = memoryview(encode_request(request, version, correlation_id, client_id))
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header = read_request_header(frame, 4)
            assert header == RequestHeader(request.API_KEY, version, correlation_id, client_id, header.body_at)
            assert REQUESTS[request.API_KEY].decode(frame, version, header.body_at) == request


@pytest.mark.requirement("R4.2", "R4.3", "R4.4", "X4.3")
@pytest.mark.parametrize(("name", "version"), [row for row in ON_THE_WIRE if row[0].endswith("Response")])
def test_response_header_round_trips(name: str, version: int) -> None:
    response = sample(name, version, "full")
    for correlation_id in (0, -(2**31), 2**31 - 1):
        frame = memoryview(encode_response(response, version, correlation_id))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        got, body_at = read_response_header(frame, response.API_KEY, version, 4)
        assert got == correlation_id
        assert RESPONSES[response.API_KEY].decode(frame, version, body_at) == response


@pytest.mark.requirement("R4.21", "X4.3")
@pytest.mark.trap(1)
def test_only_flexible_responses_have_tags_and_api_versions_never() -> None:
    for key, flexible_from in FLEXIBLE_FROM.items():
        assert has_tagged_response_header(key, flexible_from) == (key != ApiKey.API_VERSIONS)
        assert not has_tagged_response_header(key, flexible_from - 1)


@pytest.mark.requirement("R4.5", "R4.6")
@pytest.mark.trap(3)
def test_client_id_stays_legacy_in_front_of_tags() -> None:
    header = bytes.fromhex("0012 0003 00000007 0003 616263 01 63 02 ffff")
    assert read_request_header(memoryview(header)) == RequestHeader(18, 3, 7, "abc", len(header))


def test_unknown_api_key_is_read_as_far_as_all_headers_agree() -> None:
    header = bytes.fromhex("03e7 0063 fffffffe 0003 616263")
    assert read_request_header(memoryview(header)) == RequestHeader(999, 99, -2, "abc", 13)
    assert read_routing(memoryview(header)) == RequestHeader(999, 99, -2, None, 8)


def test_header_cut_short_anywhere_is_malformed() -> None:
    header = memoryview(bytes.fromhex("0012 0003 00000007 0003 616263 01 63 02 ffff"))
    for size in range(len(header)):
        with pytest.raises(MalformedRequest):
            read_request_header(header[:size])
    for size in range(8):
        with pytest.raises(MalformedRequest):
            read_routing(header[:size])
    response = memoryview(bytes.fromhex("00000007 01 63 02 ffff"))
    for size in range(len(response)):
        with pytest.raises(MalformedRequest):
            read_response_header(response[:size], ApiKey.PRODUCE, 9)


@pytest.mark.parametrize("size", ["fffe", "8000", "7fff"])
def test_header_with_an_absurd_client_id_is_malformed(size: str) -> None:
    with pytest.raises(MalformedRequest):
        read_request_header(memoryview(bytes.fromhex(f"0012 0000 00000007 {size} 6162")))


def test_header_with_bad_utf8_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        read_request_header(memoryview(bytes.fromhex("0012 0000 00000007 0002 c328")))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        header = read_request_header(memoryview(data))
    except MalformedRequest:
        return
    assert 10 <= header.body_at <= len(data)


def test_versioned_blobs_carry_their_version_in_front() -> None:
    subscription = ConsumerProtocolSubscription(topics=["events"], generation_id=4)
    blob = encode_versioned(subscription, 2)
    assert blob[:2] == b"\x00\x02"
    assert ConsumerProtocolSubscription.decode(blob, read_version(blob), BODY_AT) == subscription
    with pytest.raises(MalformedRequest):
        read_version(b"\x00")
