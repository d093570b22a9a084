"""A real node on a real S3 server: the server is killed and comes back, the node is killed, its disk is lost."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess
from tests.support.object_stores import BUCKET, CannotStart, S3Server, seaweedfs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    try:
        with seaweedfs() as running:
            yield running
    except CannotStart as error:
        pytest.skip(str(error))


def make_node(tmp_path: Path, server: S3Server, **settings: object) -> NodeProcess:
    return NodeProcess(
        tmp_path / "data",
        {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": server.endpoint,
            "object_store.s3.prefix": tmp_path.name,
            "object_store.request.timeout.ms": 2000,
            "object_store.retry.count": 1,
            "object_store.circuit.failures": 3,
            "object_store.circuit.open.ms": 500,
            "tier.upload.interval.ms": 300,
            **settings,
        },
    )


class Load:
    """An idempotent producer that remembers what was acknowledged."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 1})
        self._topic = topic
        self._count = 0
        self.acknowledged: set[bytes] = set()

    def send(self, count: int, *, size: int = 100) -> None:
        for _ in range(count):
            value = b"%08d" % self._count + b"x" * size
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._count += 1
        assert self._producer.flush(30) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged.add(message.value() or b"")


def create_topic(node: NodeProcess, name: str, *, durability: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    (created,) = admin.create_topics([NewTopic(name, 1, config={"durability": durability})]).values()
    created.result(10)


def consume_all(node: NodeProcess, topic: str, count: int, *, seconds: float = 30) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    consumer.close()
    return found


def exposure(node: NodeProcess) -> float:
    """Bytes that only the node's disk has."""
    import urllib.request

    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics") as answer:
        text = answer.read().decode()
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("headrace_exposure_bytes{")
    )


def wait_uploaded(node: NodeProcess, *, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while exposure(node) > 0:
        assert time.monotonic() < end, f"not uploaded in time:\n{node.log_text()}"
        time.sleep(0.1)


@pytest.mark.requirement("R3.46", "R3.51", "R3.117")
def test_producers_go_on_while_the_store_is_down_and_all_is_uploaded_after(tmp_path: Path, server: S3Server) -> None:
    node = make_node(tmp_path, server).start()
    try:
        load = Load(node, "t")
        load.send(500)
        wait_uploaded(node)
        server.stop()
        for _ in range(5):
            load.send(200)
            time.sleep(0.3)
        assert exposure(node) > 0
        server.start()
        load.send(500)
        wait_uploaded(node)
        node.kill()
        shutil.rmtree(node.data_dir / "wal")
        node.start()
        found = consume_all(node, "t", 2000)
        assert len(found) == len(set(found)) == 2000
        assert set(found) == load.acknowledged
    finally:
        if server.process is None:
            server.start()
        node.stop()


@pytest.mark.requirement("R3.6", "R3.53", "R3.119")
@pytest.mark.parametrize("durability", ["wal", "object"])
def test_nothing_acknowledged_is_lost_or_repeated_by_kills_under_load(
    tmp_path: Path, server: S3Server, durability: str
) -> None:
    node = make_node(tmp_path, server, **{"tier.upload.interval.ms": 50}).start()
    acknowledged: set[bytes] = set()
    try:
        create_topic(node, "t", durability=durability)
        for round_ in range(4):
            load = Load(node, "t")
            load._count = round_ * 1000
            load.send(100 + 100 * round_, size=2000)
            acknowledged |= load.acknowledged
            node.kill()
            node.start()
        found = consume_all(node, "t", len(acknowledged))
        assert len(found) == len(set(found))
        assert set(found) == acknowledged
    finally:
        node.stop()


@pytest.mark.requirement("R3.9")
def test_object_durability_survives_the_loss_of_the_disk(tmp_path: Path, server: S3Server) -> None:
    """acks=all on an `object` topic: what was acknowledged is in the bucket, so the WAL may burn."""
    node = make_node(tmp_path, server, **{"tier.upload.interval.ms": 60_000}).start()
    try:
        create_topic(node, "o", durability="object")
        load = Load(node, "o")
        load.send(300)
        node.kill()
        shutil.rmtree(node.data_dir / "wal")
        node.start()
        assert set(consume_all(node, "o", 300)) == load.acknowledged
    finally:
        node.stop()


def test_a_node_starts_without_the_store_it_had_and_uploads_once_it_is_back(tmp_path: Path, server: S3Server) -> None:
    node = make_node(tmp_path, server).start()
    try:
        load = Load(node, "t")
        load.send(300)
        wait_uploaded(node)
        assert node.stop() == 0
        server.stop()
        node.start()
        again = Load(node, "t")
        again._count = 300
        again.send(300)
        assert exposure(node) > 0
        server.start()
        wait_uploaded(node)
        found = consume_all(node, "t", 600)
        assert len(found) == len(set(found)) == 600
        assert set(found) == load.acknowledged | again.acknowledged
    finally:
        if server.process is None:
            server.start()
        node.stop()


def test_a_new_node_refuses_to_start_without_the_store(tmp_path: Path, server: S3Server) -> None:
    node = make_node(tmp_path, server)
    server.stop()
    try:
        node.spawn()
        assert node.process is not None
        assert node.process.wait(60) != 0
        assert "cannot write to it" in node.log_text()
    finally:
        server.start()
