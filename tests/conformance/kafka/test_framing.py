"""Frames, headers and the order of answers, whatever the request is about."""

import struct
import time

import pytest
from tests.support.kafka_client import Wanted, fetch_request, hand_made, produce_one
from tests.support.kafka_messages import uvarint
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse
from headrace.wire.kafka.messages.produce_response import ProduceResponse

METADATA = 3
NO_CLIENT = b"\xff\xff"
UNKNOWN_TAGS = b"\x02\x00\x03abc\xe8\x07\x01z"
"""Two tagged fields that no schema has: tag 0 with three bytes, tag 1000 with one."""


@pytest.mark.requirement("R4.1", "R4.3", "R4.4", "R4.65")
@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_correlation_id_comes_back_unchanged(client: RawKafka, correlation_id: int) -> None:
    client.send(hand_made(18, 0, correlation_id, NO_CLIENT))
    assert client.read_frame()[:4] == struct.pack(">i", correlation_id)


@pytest.mark.requirement("R4.5")
@pytest.mark.trap(3)
@pytest.mark.parametrize("client_id", [NO_CLIENT, b"\x00\x00", b"\x00\x05kafka", b"\x00\x06caf\xc3\xa9!"])
@pytest.mark.parametrize("version", [0, 3])
def test_client_id_is_a_legacy_string_in_both_headers(client: RawKafka, client_id: bytes, version: int) -> None:
    rest = client_id + (b"\x00\x04raw\x021\x00" if version >= 3 else b"")
    client.send(hand_made(18, version, 3, rest))
    assert client.read_frame()[:6] == struct.pack(">ih", 3, 0)


@pytest.mark.requirement("R4.5", "R4.6")
@pytest.mark.trap(4)
def test_unknown_tags_are_skipped_in_the_header_and_at_every_depth(client: RawKafka, topic: str) -> None:
    name = topic.encode()
    body = b"\x02" + bytes(16) + bytes([len(name) + 1]) + name + UNKNOWN_TAGS + b"\x00\x00" + UNKNOWN_TAGS
    client.send(hand_made(METADATA, 12, 5, b"\x00\x03raw" + UNKNOWN_TAGS + body))
    frame = client.read_frame()
    assert frame[:5] == struct.pack(">iB", 5, 0)
    found = MetadataResponse.decode(frame, 12, 5)
    assert [(each.name, each.error_code) for each in found.topics] == [(topic, 0)]


@pytest.mark.requirement("R4.6")
@pytest.mark.trap(4)
def test_unknown_tags_are_skipped_in_produce_and_fetch(client: RawKafka, topic: str) -> None:
    batch = bytes(batch_of([b"tagged"]))
    name = bytes([len(topic) + 1]) + topic.encode()
    records = struct.pack(">i", 0) + uvarint(len(batch) + 1) + batch + UNKNOWN_TAGS
    body = b"\x00" + struct.pack(">hi", -1, 1000) + b"\x02" + name + b"\x02" + records + UNKNOWN_TAGS + UNKNOWN_TAGS
    client.send(hand_made(0, 9, 6, NO_CLIENT + UNKNOWN_TAGS + body))
    produced = ProduceResponse.decode(client.read_frame(), 9, 5)
    assert produced.responses[0].partition_responses[0].error_code == 0

    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20) + UNKNOWN_TAGS
    head = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
    # Tag 0 of Fetch is known (the cluster id), so the unknown one here is 77.
    body = head + b"\x02" + name + b"\x02" + partition + UNKNOWN_TAGS + b"\x01" + b"\x01" + b"\x01\x4d\x01z"
    client.send(hand_made(1, 12, 7, NO_CLIENT + UNKNOWN_TAGS + body))
    fetched = FetchResponse.decode(client.read_frame(), 12, 5)
    assert bytes(fetched.responses[0].partitions[0].records or b"")[61:] == batch[61:]


@pytest.mark.requirement("X4.3")
@pytest.mark.trap(1)
@pytest.mark.parametrize(("version", "tag"), [(8, b""), (9, b"\x00")])
def test_response_header_has_tags_in_flexible_versions_only(client: RawKafka, version: int, tag: bytes) -> None:
    client.send(encode_request(MetadataRequest([]), version, 11, None))
    frame = client.read_frame()
    assert frame.startswith(struct.pack(">i", 11) + tag + bytes(4))
    assert MetadataResponse.decode(frame, version, 4 + len(tag)).brokers


@pytest.mark.requirement("R4.7")
def test_frame_split_at_every_byte_is_read_whole(client: RawKafka) -> None:
    frame = encode_request(ApiVersionsRequest("raw", "1"), 4, 21, "split")
    for byte in frame:
        client.send(bytes([byte]))
        time.sleep(0.001)
    assert client.read_frame()[:6] == struct.pack(">ih", 21, 0)


@pytest.mark.requirement("R4.2", "R4.7")
def test_frames_that_come_together_are_taken_apart(client: RawKafka) -> None:
    frames = [encode_request(ApiVersionsRequest("raw", "1"), version, version, None) for version in (0, 3, 1, 4, 2)]
    client.send(b"".join(frames) + frames[0][:5])
    assert [client.read_frame()[:4] for _ in frames] == [struct.pack(">i", each) for each in (0, 3, 1, 4, 2)]
    client.send(frames[0][5:])
    assert client.read_frame()[:4] == bytes(4)


@pytest.mark.requirement("R4.8")
@pytest.mark.trap(24)
def test_pipelined_requests_are_answered_in_order_behind_a_parked_fetch(node: NodeProcess, topic: str) -> None:
    with RawKafka(node.kafka) as client, RawKafka(node.kafka) as other:
        parked = client.send_request(fetch_request(Wanted(topic), wait_ms=600_000, min_bytes=1), 12)
        behind = client.send_request(ApiVersionsRequest(), 0)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.read_frame()
        client.socket.settimeout(30)
        assert other.produce(topic, 0, batch_of([b"wake"])).error_code == 0
        fetched = client.read_response(FetchResponse, 12, parked)
        assert fetched.responses[0].partitions[0].records
        assert client.read_frame()[:4] == struct.pack(">i", behind)


@pytest.mark.requirement("R4.8", "R4.56", "R4.57")
@pytest.mark.trap(24)
def test_pipelined_produces_are_appended_in_the_order_they_were_sent(client: RawKafka, topic: str) -> None:
    sent = [client.send_produce(topic, 0, batch_of([b"%d" % number])) for number in range(300)]
    offsets = [client.read_produced(each).base_offset for each in sent]
    assert offsets == list(range(300))
    assert [record.value for record in client.read_all(topic, 0)] == [b"%d" % number for number in range(300)]


@pytest.mark.requirement("R4.8")
def test_requests_of_all_kinds_interleave_in_order(client: RawKafka, topic: str) -> None:
    """Answered at once, after a flush, after a creation and after a wait: the order is that of the requests."""
    sent = []
    for number in range(20):
        sent.append(client.send_produce(topic, 0, batch_of([b"x"])))
        sent.append(client.send_request(ApiVersionsRequest(), 0))
        sent.append(client.send_request(fetch_request(Wanted(topic, 10_000 + number), wait_ms=5), 12))
        sent.append(client.send_request(MetadataRequest([MetadataRequestTopic(name=f"{topic}-{number}")], True), 9))
    assert [struct.unpack(">i", client.read_frame()[:4])[0] for _ in sent] == sent


@pytest.mark.trap(51)
@pytest.mark.parametrize("size", [-1, 0, 7, 104_857_601, 2**31 - 1, -(2**31)])
def test_frame_size_out_of_bounds_closes_at_once(node: NodeProcess, size: int) -> None:
    with RawKafka(node.kafka) as client:
        client.send(struct.pack(">i", size))
        assert client.socket.recv(1) == b""


def test_frame_of_many_megabytes_is_taken(client: RawKafka, name: str) -> None:
    client.create_topic(name, 1, {"max.message.bytes": str(20_000_000)})
    value = bytes(range(256)) * (64 * 1024)
    assert produce_one(client, name, batch_of([value])).error_code == 0
    found = client.fetch(name, 0, 0, max_bytes=1024)
    assert bytes(found.records or b"")[-len(value) - 1 : -1] == value
