"""What the RustLog door answers, request by request."""

import base64
import json
import os
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.node import NodeProcess, running_node
from tests.support.raw_socket import RawSocket

from headrace.clients import BlockingRustLogClient, ClientError, RetryPolicy


def ask(connection: RawSocket, request: dict[str, Any]) -> dict[str, Any]:
    payload = json.dumps(request).encode()
    connection.send(struct.pack(">I", len(payload)) + payload)
    return answer(connection)


def answer(connection: RawSocket) -> dict[str, Any]:
    _, payload = connection.read_frame(">I")
    found: dict[str, Any] = json.loads(payload)
    return found


@pytest.fixture
def raw(node: NodeProcess) -> Any:
    with RawSocket(node.endpoints["rustlog"]) as connection:
        yield connection


@pytest.mark.requirement("R0.16", "R0.18")
def test_all_ten_requests_are_served(raw: RawSocket, topic: str) -> None:
    place = {"topic": topic, "partition": 0}
    requests: list[dict[str, Any]] = [
        {"type": "Produce", **place, "records": ["aGk="]},
        {"type": "Fetch", "group_id": "g", **place, "offset": 0, "max_bytes": 100},
        {"type": "OffsetCommit", "group": "g", **place, "offset": 1},
        {"type": "OffsetFetch", "group": "g", **place},
        {"type": "CreateTopic", "topic": f"{topic}-b", "partition_count": 1},
        {"type": "ListTopics"},
        {"type": "DescribeTopic", "topic": topic},
        {"type": "DescribePartition", **place},
        {"type": "MetricsFetch"},
        {"type": "Ping"},
    ]
    names = [ask(raw, request)["type"] for request in requests]
    assert names == [f"{request['type']}Response" for request in requests[:-1]] + ["Pong"]


@pytest.mark.requirement("R0.22")
def test_ping_is_answered_with_pong(raw: RawSocket) -> None:
    raw.send(b'\x00\x00\x00\x0f{"type":"Ping"}')
    assert raw.read(19) == b'\x00\x00\x00\x0f{"type":"Pong"}'


@pytest.mark.requirement("R0.26", "R0.35", "R0.36", "R0.37", "R0.39", "R0.106")
def test_produce_then_fetch(raw: RawSocket, topic: str) -> None:
    records = ["eyJ1c2VyIjoiYWxpY2UiLCJhY3Rpb24iOiJsb2dpbiJ9", "eyJ1c2VyIjoiYm9iIiwiYWN0aW9uIjoic2lnbnVwIn0="]
    first = ask(raw, {"type": "Produce", "topic": topic, "partition": 0, "records": records})
    assert first == {"type": "ProduceResponse", "base_offset": 0, "record_count": 2}
    second = ask(raw, {"type": "Produce", "topic": topic, "partition": 0, "records": records[:1]})
    assert second == {"type": "ProduceResponse", "base_offset": 2, "record_count": 1}
    fetched = ask(
        raw,
        {"type": "Fetch", "group_id": "g", "topic": topic, "partition": 0, "offset": 0, "max_bytes": 1 << 20},
    )
    assert [record["offset"] for record in fetched["records"]] == [0, 1, 2]
    assert [record["payload"] for record in fetched["records"]] == [*records, records[0]]
    assert set(fetched["records"][0]) == {"offset", "timestamp", "payload"}
    assert fetched["next_offset"] == 3


@pytest.mark.requirement("R0.27", "R0.13")
def test_any_bytes_round_trip(client: BlockingRustLogClient, topic: str) -> None:
    records = [b"", bytes(range(256)), os.urandom(100_000), b"\x00", "\u65e5\u672c".encode()]
    client.produce(topic, records)
    fetched = client.fetch(topic, offset=0).records
    assert [record.payload for record in fetched] == records


@pytest.mark.requirement("R0.28", "R0.66", "R0.67", "R0.68")
def test_names_and_counts_that_create_refuses(client: BlockingRustLogClient, topic: str) -> None:
    for name in ("", "a.b", "a b", "a/b", "t\u00f6pic", "x" * 256, "..", "a\u0000"):
        with pytest.raises(ClientError) as refused:
            client.create_topic(name, partitions=1)
        assert refused.value.code == 400
        assert refused.value.details == {"reason": "invalid_topic_name"}
    for count in (0, 1001):
        with pytest.raises(ClientError) as refused:
            client.create_topic(f"{topic}-count", partitions=count)
        assert refused.value.code == 400
        assert refused.value.details == {"reason": "invalid_partition_count"}
    with pytest.raises(ClientError) as refused:
        client.create_topic(topic, partitions=1)
    assert refused.value.details == {"reason": "topic_already_exists"}


@pytest.mark.requirement("R0.28", "R0.66", "R0.67", "R0.69", "R0.70")
def test_names_and_counts_that_create_takes(client: BlockingRustLogClient) -> None:
    for name, count in (("x" * 255, 1), ("A_b-9", 1000), ("-", 2)):
        created = client.create_topic(name, partitions=count)
        assert (created.success, created.partitions_created) == (True, count)
        described = client.describe_topic(name)
        assert [p.partition for p in described.partitions] == list(range(count))
        assert all((p.high_watermark, p.log_start_offset) == (0, 0) for p in described.partitions)


@pytest.mark.requirement("R0.29", "R0.30", "R0.31", "R0.46", "R0.78", "R0.82", "R0.94", "R0.107")
def test_what_does_not_exist(client: BlockingRustLogClient, topic: str) -> None:
    calls: list[Callable[[str, int], object]] = [
        lambda name, index: client.produce(name, [b"x"], partition=index),
        lambda name, index: client.fetch(name, offset=0, partition=index),
        lambda name, index: client.describe_partition(name, index),
    ]
    for call in calls:
        with pytest.raises(ClientError) as missing:
            call("nonexistent", 0)
        assert (missing.value.code, str(missing.value)) == (404, "Topic 'nonexistent' not found")
        assert topic in (missing.value.details or {})["available_topics"]
        with pytest.raises(ClientError) as missing:
            call(topic, 2)
        assert missing.value.code == 405
    with pytest.raises(ClientError) as missing:
        client.describe_topic("nonexistent")
    assert missing.value.code == 404
    assert [p.high_watermark for p in client.describe_topic(topic).partitions] == [0, 0]
    client.produce(topic, [b"x"], partition=1)


@pytest.mark.requirement("R0.33")
def test_a_thousand_records_and_one_too_many(client: BlockingRustLogClient, topic: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [b"x"] * 1001)
    assert refused.value.code == 400
    assert client.describe_partition(topic, 0).high_watermark == 0
    assert client.produce(topic, [b"x"] * 1000).record_count == 1000


@pytest.mark.requirement("R0.32", "R0.80")
def test_records_over_the_limit(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "data", {"rustlog.record.max.bytes": 1000}) as node,
        BlockingRustLogClient(node.endpoints["rustlog"], retry=RetryPolicy(attempts_max=1)) as client,
    ):
        client.create_topic("t")
        client.produce("t", [bytes(1000)])
        with pytest.raises(ClientError) as refused:
            client.produce("t", [b"small", bytes(1001)])
        assert refused.value.code == 413
        assert client.describe_partition("t", 0).high_watermark == 1


@pytest.mark.requirement("R0.38")
def test_concurrent_producers_get_ranges_that_do_not_overlap(node: NodeProcess, topic: str) -> None:
    def run(number: int) -> list[tuple[int, int]]:
        with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
            answers = [client.produce(topic, [b"%d" % number] * (1 + i % 3)) for i in range(40)]
        return [(each.base_offset, each.record_count) for each in answers]

    with ThreadPoolExecutor(6) as pool:
        ranges = sorted(each for found in pool.map(run, range(6)) for each in found)
    expected = 0
    for base, count in ranges:
        assert base == expected
        expected = base + count


@pytest.mark.requirement("R0.41", "R0.42", "R0.50", "R0.51", "R0.53", "R0.54")
def test_reading_on_from_next_offset_sees_everything_once(client: BlockingRustLogClient, topic: str) -> None:
    for number in range(30):
        client.produce(topic, [b"%d-%d" % (number, i) for i in range(7)])
    client.commit("reader", topic, offset=5)
    offset, seen = 0, []
    while True:
        fetched = client.fetch(topic, offset=offset, group_id="reader", max_bytes=40)
        if not fetched.records:
            break
        assert fetched.records[0].offset == offset
        offsets = [record.offset for record in fetched.records]
        assert offsets == sorted(set(offsets))
        assert fetched.next_offset == offsets[-1] + 1
        seen += fetched.records
        offset = fetched.next_offset
    assert [record.offset for record in seen] == list(range(210))
    assert client.fetch(topic, offset=3, group_id="other").records[0].offset == 3
    assert client.committed("reader", topic) == 5


@pytest.mark.requirement("R0.43")
def test_max_bytes_is_soft(client: BlockingRustLogClient, topic: str) -> None:
    client.produce(topic, [bytes(1000)] * 10)
    assert len(client.fetch(topic, offset=0, max_bytes=1).records) == 1
    assert len(client.fetch(topic, offset=0, max_bytes=0).records) == 1
    assert 2 <= len(client.fetch(topic, offset=0, max_bytes=3000).records) <= 4
    assert len(client.fetch(topic, offset=0, max_bytes=2**64 - 1).records) == 10


@pytest.mark.requirement("R0.44", "R0.52", "C3")
def test_at_and_past_the_end_there_is_nothing(client: BlockingRustLogClient, topic: str) -> None:
    client.produce(topic, [b"x"])
    for offset in (1, 2, 5000, 2**63, 2**64 - 1):
        fetched = client.fetch(topic, offset=offset)
        assert (fetched.records, fetched.next_offset) == ([], offset)


@pytest.mark.requirement("R0.49", "C62")
def test_timestamps_are_microseconds(client: BlockingRustLogClient, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    client.produce(topic, [b"x"])
    after = time.time_ns() // 1_000_000
    timestamp = client.fetch(topic, offset=0).records[0].timestamp
    assert before * 1000 <= timestamp <= after * 1000


@pytest.mark.requirement("R0.45", "R0.76", "R0.83", "R0.107", "C3")
def test_below_the_log_start_is_out_of_range(node: NodeProcess, client: BlockingRustLogClient, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client.produce(topic, [b"x"] * 10)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(60)
    with pytest.raises(ClientError) as refused:
        client.fetch(topic, offset=3)
    assert (refused.value.code, str(refused.value)) == (416, "Offset 3 out of range")
    assert refused.value.details == {"valid_range": {"start": 4, "end": 10}, "high_watermark": 10}
    assert client.describe_partition(topic, 0).log_start_offset == 4
    assert client.fetch(topic, offset=4).records[0].offset == 4


@pytest.mark.requirement("R0.56", "R0.57", "R0.58", "R0.59", "R0.61", "R0.62", "R0.64")
def test_commits(client: BlockingRustLogClient, topic: str) -> None:
    assert client.committed("g", topic) is None
    assert client.commit("g", topic, offset=7)
    assert client.commit("g", topic, offset=9, partition=1)
    assert client.committed("g", topic) == 7
    assert client.committed("g", topic, partition=1) == 9
    assert client.committed("h", topic) is None
    assert client.commit("g", topic, offset=3)
    assert client.committed("g", topic) == 3
    assert client.commit("g", "nonexistent", offset=1) is False
    assert client.commit("g", topic, offset=1, partition=9) is False
    assert client.committed("g", "nonexistent") is None


@pytest.mark.requirement("R0.60", "C5")
def test_commits_are_gone_after_a_restart_unless_durable(tmp_path: Path) -> None:
    for is_durable, expected in ((False, None), (True, 4)):
        settings = {"rustlog.offsets.durable": str(is_durable).lower()}
        with running_node(tmp_path / f"data-{is_durable}", settings) as node:
            with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
                client.create_topic("t")
                client.produce("t", [b"kept"] * 5)
                client.commit("g", "t", offset=4)
            node.restart()
            with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
                assert client.committed("g", "t") == expected
                assert client.fetch("t", offset=4).records[0].payload == b"kept"


@pytest.mark.requirement("R0.71", "R0.72", "R0.77", "R0.75")
def test_listing_and_describing(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "data") as node,
        BlockingRustLogClient(node.endpoints["rustlog"]) as client,
    ):
        assert client.list_topics() == []
        client.create_topic("b", partitions=3)
        client.create_topic("a")
        assert {(each.name, each.partition_count) for each in client.list_topics()} == {("a", 1), ("b", 3)}
        client.produce("a", [b"x"] * 5)
        (partition,) = client.describe_topic("a").partitions
        assert (partition.high_watermark, partition.log_start_offset) == (5, 0)
        assert partition.segment_count >= 1


@pytest.mark.requirement("R0.24", "C10")
def test_describing_one_partition(raw: RawSocket, client: BlockingRustLogClient, topic: str) -> None:
    client.produce(topic, [b"x"] * 3, partition=1)
    found = ask(raw, {"type": "DescribePartition", "topic": topic, "partition": 1})
    # The one that is written to, and another as soon as the records are in the object store.
    assert found.pop("segment_count") in (1, 2)
    assert found == {
        "type": "DescribePartitionResponse",
        "topic": topic,
        "partition": 1,
        "high_watermark": 3,
        "log_start_offset": 0,
    }


@pytest.mark.requirement("R0.23", "X0.4", "X0.5", "C10")
def test_metrics(client: BlockingRustLogClient, topic: str) -> None:
    client.produce(topic, [b"x"] * 10)
    client.fetch(topic, offset=0, group_id="lagging", max_bytes=3)
    client.commit("committed", topic, offset=4)
    found = client.metrics()
    for name in (
        "messages_produced_total",
        "messages_fetched_total",
        "bytes_in_total",
        "bytes_out_total",
        "active_connections",
        "produce_latency_ns_p50",
        "produce_latency_ns_p95",
        "produce_latency_ns_p99",
        "fetch_latency_ns_p50",
        "fetch_latency_ns_p99",
    ):
        assert found.metrics[name] > 0, name
    assert {"segments_deleted_total", "bytes_reclaimed_total"} <= set(found.metrics)
    lags = {(each.group, each.topic, each.partition): each.lag for each in found.consumer_lag}
    assert lags[("lagging", topic, 0)] == 7
    assert lags[("committed", topic, 0)] == 6
    assert "# HELP" in found.text
    assert "messages_produced_total" in found.text


@pytest.mark.requirement("R0.8", "R0.3", "R0.109", "C2")
def test_the_largest_frames(node: NodeProcess, client: BlockingRustLogClient) -> None:
    """What is taken comes back: the answer to a Fetch has more words around a record than the Produce had."""
    client.create_topic("L", partitions=1)
    largest = os.urandom(7_864_209)
    with RawSocket(node.endpoints["rustlog"]) as connection:
        for record, taken in ((largest, True), (largest + b"x", False)):
            encoded = base64.b64encode(record)
            payload = b'{"type":"Produce","topic":"L","partition":0,"records":["' + encoded + b'"]}'
            payload += b" " * (10_485_760 - len(payload))
            connection.send(struct.pack(">I", len(payload)) + payload)
            reply = answer(connection)
            if taken:
                assert reply == {"type": "ProduceResponse", "base_offset": 0, "record_count": 1}
            else:
                assert (reply["code"], "7864209" in reply["message"]) == (413, True)
    client.produce("L", [bytes(7_000_000)])
    (back,) = client.fetch("L", offset=0, max_bytes=2**40).records
    assert back.payload == largest
    fetched = client.fetch("L", offset=1, max_bytes=2**40)
    assert [len(each.payload) for each in fetched.records] == [7_000_000]
    client.produce("L", [bytes(4_000_000)] * 1)
    assert len(client.fetch("L", offset=1, max_bytes=2**40).records) == 1
    assert client.fetch("L", offset=1, max_bytes=2**40).next_offset == 2
    producer = Producer({"bootstrap.servers": node.kafka, "message.max.bytes": 11_000_000})
    producer.produce("L", bytes(8_000_000), partition=0)
    assert producer.flush(60) == 0
    with pytest.raises(ClientError) as refused:
        client.fetch("L", offset=3, max_bytes=2**40)
    assert refused.value.code == 413
    assert refused.value.details == {"offset": 3, "size": 8_000_000, "next_offset": 4}


@pytest.mark.requirement("R0.103")
def test_kafka_is_not_understood_here(node: NodeProcess) -> None:
    with RawSocket(node.endpoints["rustlog"]) as connection:
        # ApiVersions v0: a length of 14, then what is no JSON.
        connection.send(bytes.fromhex("0000000e00120000000000010004") + b"kcat")
        assert answer(connection)["code"] == 400
        assert connection.is_closed_by_peer()


@pytest.mark.requirement("R0.110")
def test_unicode_in_names_is_looked_up_not_mangled(raw: RawSocket) -> None:
    for name in ("t\u00f6pic", "\U0001f600", "\u0000"):
        found = ask(raw, {"type": "DescribeTopic", "topic": name})
        assert (found["code"], found["message"]) == (404, f"Topic '{name}' not found")
    raw.send(struct.pack(">I", 49) + b'{"type":"DescribeTopic","topic":"\\ud83d\\ude00  "}')
    assert "\U0001f600" in answer(raw)["message"]


def test_a_connection_goes_on_after_megabytes_of_answers(client: BlockingRustLogClient, topic: str) -> None:
    client.produce(topic, [bytes([number]) * 60_000 for number in range(10)])
    for _ in range(8):
        fetched = client.fetch(topic, offset=0, max_bytes=1_000_000)
        assert len(fetched.records) == 10
    client.ping()
