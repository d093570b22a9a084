"""Bytes that are no Kafka request, against a real node: an error or a closed connection, a counter, nobody else hurt."""

import contextlib
import random
import struct
import time
from collections.abc import Iterator

import pytest
from tests.support.canary import Canary, metric, rss_bytes
from tests.support.kafka_messages import uvarint
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import Closed, RawKafka, batch_of, produce_request

from headrace.doors.kafka.routes import ROUTES
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic

TOPIC = "hostile"
FRAME_MAX = 104_857_600
MIB = 1024 * 1024
UNSUPPORTED_VERSION = 35


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("hostile") / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, 0, batch_of([b"there"]))
        yield node


@pytest.fixture(autouse=True)
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.kafka) as canary:
        yield canary


@pytest.mark.trap(51)
@pytest.mark.requirement("R4.7")
@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 7, FRAME_MAX + 1, 2**31 - 1])
def test_a_length_out_of_bounds_closes_the_connection_at_once(node: NodeProcess, size: int) -> None:
    """No body is waited for and no memory taken: the length alone is enough."""
    before = metric(node, "headrace_kafka_refused_total")
    with RawKafka(node.kafka) as client:
        client.send(struct.pack(">i", size))
        assert client.is_closed_by_peer()
    assert metric(node, "headrace_kafka_refused_total") == before + 1


@pytest.mark.trap(51)
def test_a_promised_length_takes_no_memory(node: NodeProcess) -> None:
    """A hundred clients announce the largest frame there is, send a little of it, and fall silent."""
    before = rss_bytes(node)
    clients = [RawKafka(node.kafka) for _ in range(100)]
    for client in clients:
        client.send(struct.pack(">i", FRAME_MAX) + bytes(70_000))
    with RawKafka(node.kafka) as other:
        other.api_versions()
    grown = rss_bytes(node) - before
    for client in clients:
        client.close()
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB for promises"


REQUESTS: list[tuple[Message, int]] = [
    (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
    (produce_request(TOPIC, 0, batch_of([b"cut short"])), 9),
    (produce_request(TOPIC, 0, batch_of([b"cut short"])), 3),
    (FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition_max_bytes=100)])]), 4),
    (FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition_max_bytes=100)])]), 12),
    (MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 1),
    (MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12),
    (ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])]), 7),
    (CreateTopicsRequest([CreatableTopic("cut-short", 1, 1)], 1000, True), 7),
    (InitProducerIdRequest(None, 1000), 4),
]


@pytest.mark.requirement("R4.7")
@pytest.mark.parametrize(
    ("request_message", "version"), REQUESTS, ids=[f"{type(each).__name__}-v{version}" for each, version in REQUESTS]
)
def test_a_body_cut_short_at_any_length_is_refused_and_changes_nothing(
    node: NodeProcess, request_message: Message, version: int
) -> None:
    """The frame says how long it is and keeps its word; what is in it ends too soon."""
    whole = bytes(encode_request(request_message, version, 7, "cut"))
    with RawKafka(node.kafka) as client:
        end_before = client.offset_at(TOPIC, 0, -1)
    for length in range(8, len(whole) - 4):
        with RawKafka(node.kafka) as client:
            client.send(struct.pack(">i", length) + whole[4 : 4 + length])
            try:
                frame = client.read_frame()
            except Closed:
                continue
            # Tagged fields may be missing at the very end; whatever is answered must be an answer to this request.
            assert frame[:4] == struct.pack(">i", 7)
    with RawKafka(node.kafka) as client:
        assert client.offset_at(TOPIC, 0, -1) == end_before


def test_bytes_at_random_behind_good_headers_end_in_an_answer_or_a_close(node: NodeProcess) -> None:
    chance = random.Random(20261115)
    for key, route in ROUTES.items():
        for version in (route.versions[0], route.versions[1]):
            for _ in range(6):
                body = chance.randbytes(chance.choice((1, 5, 40, 400)))
                with RawKafka(node.kafka) as client:
                    client.socket.settimeout(0.3)
                    try:
                        client.send(_frame(key, version, body))
                        client.send(_frame(18, 0, b""))
                        client.read_frame()
                    except (Closed, TimeoutError):
                        # A random fetch or join may rightly wait for long; a node that is alive answers somebody else.
                        continue
    with RawKafka(node.kafka) as client:
        assert client.api_versions().error_code == 0
    assert "Traceback" not in node.log_text()


@pytest.mark.requirement("R4.14")
def test_an_unknown_key_is_answered_with_its_correlation_id_then_closed(node: NodeProcess) -> None:
    before = metric(node, "headrace_kafka_refused_total")
    for key in (-1, 9999, 32767):
        with RawKafka(node.kafka) as client:
            client.send(_frame(key, 0, b"whatever", correlation_id=4242))
            assert client.read_frame() == struct.pack(">ih", 4242, UNSUPPORTED_VERSION)
            assert client.is_closed_by_peer()
    assert metric(node, "headrace_kafka_refused_total") == before + 3


@pytest.mark.trap(46)
def test_an_unknown_version_closes_and_only_api_versions_is_answered(node: NodeProcess) -> None:
    for key, route in ROUTES.items():
        for version in (-1, route.versions[1] + 1, 32767):
            with RawKafka(node.kafka) as client:
                client.send(_frame(key, version, b"", correlation_id=5))
                if key == 18:
                    assert client.read_frame()[:6] == struct.pack(">ih", 5, UNSUPPORTED_VERSION)
                    assert client.api_versions().error_code == 0
                else:
                    assert client.is_closed_by_peer(), (key, version)


@pytest.mark.trap(51)
@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, -2])
def test_an_absurd_array_count_takes_no_memory(node: NodeProcess, count: int) -> None:
    before = rss_bytes(node)
    legacy = struct.pack(">i", count)
    compact = uvarint((count + 1) & 0xFFFFFFFF)
    frames = [
        _frame(3, 1, legacy),
        _frame(3, 12, b"\0" + compact),
        _frame(0, 3, struct.pack(">hhi", -1, -1, 1000) + legacy),
        _frame(0, 9, b"\0" + b"\0" + struct.pack(">hi", -1, 1000) + compact),
        _frame(1, 4, struct.pack(">iiiib", -1, 0, 0, 1000, 0) + legacy),
        _frame(19, 2, legacy),
        _frame(2, 1, struct.pack(">i", -1) + legacy),
    ]
    for frame in frames:
        with RawKafka(node.kafka) as client:
            client.send(frame)
            assert client.is_closed_by_peer(), frame
    assert rss_bytes(node) - before < 50 * MIB


def test_what_was_asked_before_a_bad_frame_is_still_answered(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        produced = encode_request(produce_request(TOPIC, 0, batch_of([b"good"])), 9, 1, "raw")
        client.send(produced + _frame(18, 0, b"", correlation_id=2) + struct.pack(">i", -5))
        assert client.read_produced(1).error_code == 0
        assert client.read_frame()[:4] == struct.pack(">i", 2)
        assert client.is_closed_by_peer()


def test_a_client_id_that_lies_about_its_length_is_refused(node: NodeProcess) -> None:
    for size in (32767, -2, -32768):
        with RawKafka(node.kafka) as client:
            body = struct.pack(">hhih", 3, 1, 1, size) + b"short"
            client.send(struct.pack(">i", len(body)) + body)
            assert client.is_closed_by_peer()


def _frame(key: int, version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    payload = struct.pack(">hhih", key, version, correlation_id, 1) + b"h" + body
    return struct.pack(">i", len(payload)) + payload


def test_the_log_says_why(node: NodeProcess) -> None:
    def is_said() -> bool:
        with RawKafka(node.kafka) as client:
            client.send(struct.pack(">i", -77))
            assert client.is_closed_by_peer()
        return "frame of -77 bytes" in node.log_text()

    # At once, but for a while after a flood of such frames: then the next one that is told.
    eventually(is_said, 30, "the log does not say why")


def test_a_flood_of_refused_frames_writes_some_lines_and_counts_the_rest(node: NodeProcess) -> None:
    lines = node.log_path.read_text().count("frame refused")
    began = time.monotonic()
    refused = metric(node, "headrace_kafka_refused_total")
    for _ in range(400):
        with RawKafka(node.kafka) as client, contextlib.suppress(Closed):
            client.send(struct.pack(">i", -1))
            client.read_frame()
    assert metric(node, "headrace_kafka_refused_total") - refused == 400
    periods = (time.monotonic() - began) // 10 + 2
    assert node.log_path.read_text().count("frame refused") - lines <= 30 * periods < 400
