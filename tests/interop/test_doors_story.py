"""One story across all doors: what goes in through one comes out of every other, at the same offset, also later."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from tests.support.node import NodeProcess, eventually, running_node

from headrace.clients import (
    BlockingMlogClient,
    BlockingRustLogClient,
    LogjamClient,
    LogjamPushClient,
    LogjamSubscriber,
)
from headrace.wire.logjam.compression import Compression
from headrace.wire.mlog.messages import LogEntry
from headrace.wire.rustlog.messages import FetchedRecord

STREAM = "shop-production"
STREAM_TOPIC = f"logjam-{STREAM}"
BODIES = [b'{"action":"Cart#show","code":200,"n":%d}' % n for n in range(6)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data") as running:
        yield running


def test_what_one_door_takes_every_door_gives(node: NodeProcess) -> None:
    send_over_zeromq(node)
    send_over_kafka(node)
    send_over_json(node)
    read_everywhere(node)
    node.restart()
    read_everywhere(node)
    node.kill()
    node.start()
    read_everywhere(node)


def send_over_zeromq(node: NodeProcess) -> None:
    """Six messages: as requests and as messages, on ROUTER and PULL, in every compression.

    Clients stay until what nobody acknowledges has arrived: they linger for no longer than a second.
    """
    router, pull, pub = (f"tcp://{node.endpoints[f'logjam_{name}']}" for name in ("router", "pull", "pub"))
    with LogjamSubscriber(pub, app_env_prefix="shop-") as subscriber:
        wait_until_heard(subscriber, pull)
        for number, compression in enumerate((Compression.NONE, Compression.ZLIB, Compression.SNAPPY)):
            with LogjamClient(router, compression=compression, timeout_ms=60_000) as client:
                client.request(STREAM, "logs.cart", BODIES[number])
        with LogjamClient(router, compression=Compression.LZ4) as client:
            client.send(STREAM, "logs.cart", BODIES[3])
            eventually(lambda: end_of(node, STREAM_TOPIC) == 4, 60, "four messages in the log")
        with LogjamPushClient(pull) as client:
            client.send(STREAM, "logs.cart", BODIES[4])
            client.send(STREAM, "logs.cart", BODIES[5])
            eventually(lambda: end_of(node, STREAM_TOPIC) == 6, 60, "six messages in the log")
        published = 0
        while published < len(BODIES):
            message = subscriber.receive(timeout_ms=60_000)
            assert message is not None
            published += message.app_env == STREAM.encode()


def wait_until_heard(subscriber: LogjamSubscriber, pull: str) -> None:
    """A subscription takes a moment to arrive, and what is published meanwhile passes it by."""
    with LogjamPushClient(pull) as client:

        def is_heard() -> bool:
            client.send("shop-trial", "logs.trial", b"{}")
            return subscriber.receive(timeout_ms=200) is not None

        eventually(is_heard, 60, "the subscription did not arrive")


def end_of(node: NodeProcess, topic: str) -> int:
    with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
        if topic not in {each.name for each in client.list_topics()}:
            return 0
        return client.describe_partition(topic, 0).high_watermark


def send_over_kafka(node: NodeProcess) -> None:
    """A batch with keys, headers and a tombstone in each compression."""
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": node.kafka, "compression.type": codec, "linger.ms": 50})
        for number in range(3):
            producer.produce(
                f"kafka-{codec}",
                key=f"key-{number}",
                value=None if number == 2 else b"value %d of %s " % (number, codec.encode()) * 50,
                headers=[("trace", b"\x00\xff"), ("empty", None)],
            )
        assert producer.flush(60) == 0


def send_over_json(node: NodeProcess) -> None:
    with BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog:
        rustlog.create_topic("from-rustlog")
        assert rustlog.produce("from-rustlog", [b"r0", b"r1"]).base_offset == 0
    with BlockingMlogClient([node.endpoints["mlog"]]) as mlog:
        mlog.create_topic("from-mlog")
        assert mlog.produce("from-mlog", b"m0") == 0
        assert mlog.produce_batch("from-mlog", [b"m1", b"m2"]).LastOffset == 2
        # And one into the other's topic: it is the same log.
        assert mlog.produce("from-rustlog", b"m") == 2
    with BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog:
        assert rustlog.produce("from-mlog", [b"r"]).base_offset == 3


def read_everywhere(node: NodeProcess) -> None:
    expected: dict[str, list[bytes]] = {
        STREAM_TOPIC: BODIES,
        "from-rustlog": [b"r0", b"r1", b"m"],
        "from-mlog": [b"m0", b"m1", b"m2", b"r"],
    }
    for codec in CODECS:
        values = [b"value %d of %s " % (number, codec.encode()) * 50 for number in range(2)]
        expected[f"kafka-{codec}"] = [*values, b""]
    with (
        BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog,
        BlockingMlogClient([node.endpoints["mlog"]]) as mlog,
    ):
        for topic, values in expected.items():
            numbered = list(enumerate(values))
            fetched: list[FetchedRecord] = []
            while len(fetched) < len(values):
                # Uploaded or not: what lies in two places comes in two answers.
                fetched += (page := rustlog.fetch(topic, offset=len(fetched)).records)
                assert page
            assert [(record.offset, record.payload) for record in fetched] == numbered
            entries: list[LogEntry] = []
            while len(entries) < len(values):
                entries += (batch := mlog.fetch_batch(topic, offset=len(entries), count_max=100))
                assert batch
            assert [(entry.Offset, entry.Value or b"") for entry in entries] == numbered
            messages = read_kafka(node, topic, len(values))
            assert [(message.offset(), message.value() or b"") for message in messages] == numbered
            times = [message.timestamp()[1] * 1000 for message in messages]
            assert [record.timestamp for record in fetched] == times
            assert abs(times[0] // 1_000_000 - time.time()) < 3600
    check_kafka_keeps_keys_and_headers(node)


def check_kafka_keeps_keys_and_headers(node: NodeProcess) -> None:
    for codec in CODECS:
        messages = read_kafka(node, f"kafka-{codec}", 3)
        assert [message.key() for message in messages] == [b"key-0", b"key-1", b"key-2"]
        assert messages[0].headers() == [("trace", b"\x00\xff"), ("empty", None)]
        assert messages[2].value() is None
    logjam = read_kafka(node, STREAM_TOPIC, 6)
    assert {message.key() for message in logjam} == {b"logs.cart"}
    compressions = [dict(message.headers() or [])["compression"] for message in logjam]
    assert compressions == [b"0", b"1", b"2", b"3", b"0", b"0"]


def read_kafka(node: NodeProcess, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": node.kafka, "group.id": "story", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    deadline = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


def test_groups_share_their_offsets_across_doors(node: NodeProcess) -> None:
    """One store of commits: what mlog commits Kafka goes on from, and a volatile RustLog commit is seen while it lasts."""
    with (
        BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog,
        BlockingMlogClient([node.endpoints["mlog"]]) as mlog,
    ):
        rustlog.create_topic("shared")
        rustlog.produce("shared", [b"%d" % n for n in range(10)])
        mlog.commit_offset("shared", offset=7, consumer_id="team")
        assert rustlog.committed("team", "shared") == 7
        consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "team", "enable.auto.commit": False})
        (committed,) = consumer.committed([TopicPartition("shared", 0)], timeout=60)
        assert committed.offset == 7
        rustlog.commit("team", "shared", offset=3)
        assert mlog.fetch_offset("shared", consumer_id="team") == 3
        consumer.commit(offsets=[TopicPartition("shared", 0, 9)], asynchronous=False)
        assert rustlog.committed("team", "shared") == 9
        consumer.close()


def test_transaction_markers_are_passed_over(node: NodeProcess) -> None:
    """Markers take offsets but are no records: readers of single records go on behind them and never stand still."""
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "story"})
    producer.init_transactions(60)
    for number in range(3):
        producer.begin_transaction()
        producer.produce("transactions", b"%d" % number)
        producer.commit_transaction(60)
    with (
        BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog,
        BlockingMlogClient([node.endpoints["mlog"]]) as mlog,
    ):
        # A commit is answered when it is decided; its marker follows, as in Apache Kafka.
        eventually(
            lambda: rustlog.describe_partition("transactions", 0).high_watermark == 6, 60, "the last marker is missing"
        )
        offset, seen = 0, []
        while records := rustlog.fetch("transactions", offset=offset, max_bytes=1).records:
            seen += [(record.offset, record.payload) for record in records]
            offset = records[-1].offset + 1
        assert seen == [(0, b"0"), (2, b"1"), (4, b"2")]
        entries = mlog.fetch_batch("transactions", offset=0, count_max=10)
        assert [(entry.Offset, entry.Value) for entry in entries] == seen
        behind_marker = mlog.fetch("transactions", offset=1)
        assert behind_marker is not None
        assert behind_marker.Offset == 2
        assert mlog.fetch("transactions", offset=5) is None
        streamed = []
        for entry in mlog.stream("transactions", offset=0):
            streamed.append(entry.Offset)
            if len(streamed) == 3:
                rustlog.produce("transactions", [b"after"])
            if len(streamed) == 4:
                break
        assert streamed == [0, 2, 4, 6]


def test_json_readers_pass_a_transaction_marker_before_a_large_batch(node: NodeProcess) -> None:
    """A marker has no record, and what follows it is more than these doors read at once."""
    large = b"x" * 100_000
    with BlockingRustLogClient(node.endpoints["rustlog"]) as rustlog:
        rustlog.create_topic("paid", partitions=1)
        producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "till"})
        producer.init_transactions()
        for value in (b"first", large):
            producer.begin_transaction()
            producer.produce("paid", value, partition=0)
            producer.commit_transaction()
        eventually(lambda: end_of(node, "paid") == 4, 60, "both markers in the log")
        fetched = rustlog.fetch("paid", offset=1, max_bytes=1)
        assert [(each.offset, each.payload) for each in fetched.records] == [(2, large)]
        assert fetched.next_offset == 3
        assert rustlog.fetch("paid", offset=3).next_offset == 4
    with BlockingMlogClient([node.endpoints["mlog"]]) as mlog:
        assert mlog.fetch("paid", offset=1) == LogEntry(Offset=2, Value=large)
        assert next(iter(mlog.stream("paid", offset=1))) == LogEntry(Offset=2, Value=large)
