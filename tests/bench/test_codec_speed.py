"""How long the Kafka codec takes, in microseconds, printed with `-s`. The bounds are five times what one 2026 core
needs, so they catch a lost fast path and not a busy machine."""

import timeit
from collections.abc import Callable

import pytest

from headrace.wire.kafka import fetch, metadata, produce
from headrace.wire.kafka.headers import encode_request, read_request_header
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.metadata_response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.long

MIB = 1 << 20


def fastest_us(code: Callable[[], object], *, calls: int = 5000) -> float:
    return min(timeit.repeat(code, number=calls, repeat=5)) / calls * 1e6


def check(what: str, code: Callable[[], object], *, at_most_us: float, calls: int = 5000) -> None:
    took = fastest_us(code, calls=calls)
    print(f"{what:50s} {took:9.2f} us")
    assert took <= at_most_us


@pytest.mark.parametrize("size", [100, 16 * 1024, MIB])
@pytest.mark.parametrize("version", [7, 9, 13])
def test_produce_request(version: int, size: int) -> None:
    topic = TopicProduceData("events", bytes(16), [PartitionProduceData(3, bytes(size))])
    frame = memoryview(encode_request(ProduceRequest(None, -1, 30_000, [topic]), version, 7, "rdkafka"))

    def parse() -> produce.ProduceCall:
        header = read_request_header(frame, 4)
        return produce.read_produce(frame, header.body_at, version)

    check(f"header and Produce v{version} request, {size} B", parse, at_most_us=15)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_produce_response(version: int) -> None:
    topics = [produce.ProducedTopic(bytes(16) if version >= 13 else "events", [produce.ProducedPartition(3, 0, 12345)])]
    check(f"Produce v{version} response", lambda: produce.encode_produced(version, 7, topics), at_most_us=8)


@pytest.mark.parametrize("partitions", [1, 100])
@pytest.mark.parametrize("version", [11, 12, 16])
def test_fetch_request(version: int, partitions: int) -> None:
    topic = FetchTopic("events", bytes(16), [FetchPartition(index) for index in range(partitions)])
    frame = memoryview(encode_request(FetchRequest(topics=[topic]), version, 7, "rdkafka"))
    body_at = read_request_header(frame, 4).body_at
    check(
        f"Fetch v{version} request, {partitions} partitions",
        lambda: fetch.read_fetch(frame, body_at, version),
        at_most_us=20 + 3 * partitions,
    )


@pytest.mark.parametrize("version", [11, 12, 16])
def test_fetch_response(version: int) -> None:
    records = [memoryview(bytes(MIB))]
    row = fetch.FetchedPartition(3, 0, 12345, 12345, 0, records, MIB)
    topics = [fetch.FetchedTopic(bytes(16) if version >= 13 else "events", [row])]
    check(f"Fetch v{version} response, 1 MiB", lambda: fetch.encode_fetched(version, 7, topics), at_most_us=10)


@pytest.mark.parametrize("version", [5, 12])
def test_metadata_response(version: int) -> None:
    partitions = [MetadataResponsePartition(0, index, 1, 4, replica_nodes=[1], isr_nodes=[1]) for index in range(1000)]
    topic = MetadataResponseTopic(0, "events", bytes(16), partitions=partitions)
    cluster = metadata.ClusterView(
        brokers=[MetadataResponseBroker(1, "127.0.0.1", 9092)], cluster_id="c" * 22, controller_id=1
    )
    row = metadata.encode_topic_row(version, topic)
    check(
        f"Metadata v{version} row of 1000 partitions",
        lambda: metadata.encode_topic_row(version, topic),
        at_most_us=12_000,
        calls=20,
    )
    check(
        f"Metadata v{version} response from that row",
        lambda: metadata.encode_metadata(version, 7, cluster, [row]),
        at_most_us=60,
    )
