"""A node whose object store is a real server that comes and goes, and what a test asks of it."""

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import BUCKET, S3Server

PATIENCE_S = 120.0
"""For what takes a second or two, on a machine that has other things to do."""


def make_node(tmp_path: Path, server: S3Server, **settings: object) -> NodeProcess:
    return NodeProcess(
        tmp_path / "data",
        {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": server.endpoint,
            "object_store.s3.prefix": _prefix(tmp_path),
            "object_store.request.timeout.ms": 20_000,
            "object_store.retry.count": 1,
            "object_store.circuit.failures": 3,
            "object_store.circuit.open.ms": 500,
            "tier.upload.interval.ms": 300,
            **settings,
        },
    )


def _prefix(tmp_path: Path) -> str:
    """The same for all nodes of a test, and no other test's: pytest gives the name of a directory that is gone again."""
    kept = tmp_path / "prefix"
    if not kept.exists():
        kept.write_text(f"{tmp_path.name}-{uuid4().hex}")
    return kept.read_text()


class Load:
    """An idempotent producer that remembers what was acknowledged."""

    def __init__(self, node: NodeProcess, topic: str, *, first: int = 0) -> None:
        self._producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 1})
        self._topic = topic
        self._count = first
        self.acknowledged: set[bytes] = set()

    def send(self, count: int, *, size: int = 100) -> None:
        for _ in range(count):
            value = b"%08d" % self._count + b"x" * size
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._count += 1
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged.add(message.value() or b"")


def create_topic(node: NodeProcess, name: str, *, durability: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    (created,) = admin.create_topics([NewTopic(name, 1, config={"durability": durability})]).values()
    created.result(PATIENCE_S)


def consume_all(node: NodeProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.close()
    return found


def metric(node: NodeProcess, name: str) -> float:
    """The sum over all labels."""
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics") as answer:
        text = answer.read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def problems(node: NodeProcess) -> list[str]:
    """What `/health` says an operator should look at."""
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/health") as answer:
        found: list[str] = json.load(answer)["problems"]
    return found


def exposure(node: NodeProcess) -> float:
    """Bytes that only the node's disk has."""
    return metric(node, "headrace_exposure_bytes")


def wait_uploaded(node: NodeProcess) -> None:
    eventually(lambda: exposure(node) == 0, PATIENCE_S, "not all is uploaded", node.log_text)


@contextlib.contextmanager
def uploaded_node(
    tmp_path: Path, server: S3Server, *, topic: str, count: int, **settings: object
) -> Iterator[tuple[NodeProcess, Load]]:
    """A running node and its load, whose `count` records are all in the store. The test may take the store away."""
    node = make_node(tmp_path, server, **settings).start()
    try:
        load = Load(node, topic)
        load.send(count)
        wait_uploaded(node)
        yield node, load
    finally:
        if server.process is None:
            server.start()
        node.stop()
