"""Exactly-once loops over a real cluster of three nodes while its brokers are killed: coordinators and leaders alike."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.cluster.test_cluster_up import ClusterUp, kill
from tests.support.node import eventually

PATIENCE_S = 90.0
PARTITIONS = 3
RECORDS = 300


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        made.result(PATIENCE_S)


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("in", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


class Loop(threading.Thread):
    """Reads `in`, writes the same to `out`, and commits its position with it. What fails is aborted, or begun anew."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self.is_stopped = False
        self.commits = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.is_stopped:
            try:
                self._live()
            except KafkaException as error:
                self.failures.append(str(error))
                time.sleep(0.2)

    def _live(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "loop",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "loop",
                "linger.ms": 1,
                # Whatever connection ends, it looks for coordinators again; issue 5511 of librdkafka says why it has to.
                "connections.max.idle.ms": 10_000,
            }
        )
        try:
            producer.init_transactions(PATIENCE_S)
            consumer.subscribe(["in"])
            while not self.is_stopped:
                messages = consumer.consume(5, 0.5)
                if messages:
                    self._carry(producer, consumer, messages)
                    time.sleep(0.1)
        finally:
            consumer.close()

    def _carry(self, producer: Producer, consumer: Consumer, messages: list) -> None:  # type: ignore[type-arg]
        producer.begin_transaction()
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            producer.produce("out", message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
        )
        producer.commit_transaction(PATIENCE_S)
        self.commits += 1


def read_committed(bootstrap: str, until: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("out", index, 0) for index in range(PARTITIONS)])
    found: list[bytes] = []
    end_s = time.monotonic() + PATIENCE_S
    quiet_s = time.monotonic()
    # Some time beyond the last one: what is doubled would come behind it.
    while time.monotonic() < end_s and (len(found) < until or time.monotonic() - quiet_s < 5):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
            quiet_s = time.monotonic()
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_record_goes_through_once_while_each_broker_is_killed(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster") as cluster:
        create(cluster.kafka, "in", "out")
        fill(cluster.kafka)
        loop = Loop(cluster.kafka)
        loop.start()
        for name in ("node-1", "node-2", "node-3"):
            before = loop.commits
            end_s = time.monotonic() + PATIENCE_S
            while loop.commits < before + 3 and time.monotonic() < end_s:
                time.sleep(0.1)
            killed = cluster.child(name)
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            cluster.await_back(name, killed)
        found = read_committed(cluster.kafka, RECORDS)
        loop.is_stopped = True
        loop.join(PATIENCE_S)
        print(f"{loop.commits} transactions, begun anew {len(loop.failures)} times: {loop.failures[:3]}")
        assert Counter(found) == {b"%d" % number: 1 for number in range(RECORDS)}


class Waiting(threading.Thread):
    """One transaction with offsets. The call for these does not come back in time where librdkafka waits for a broker that it forgot."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._consumer = consumer
        self.is_through = False

    def run(self) -> None:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce("out", b"x", partition=partition)
        # Every connection that the records need is there: none that is made later reminds it of what it waits for.
        self._producer.flush(PATIENCE_S)
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([TopicPartition("in", 0, 1)], group, PATIENCE_S)
        self._producer.commit_transaction(PATIENCE_S)
        self.is_through = True


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_producer_commits_offsets_to_a_coordinator_that_was_killed_and_came_back(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster") as cluster:
        create(cluster.kafka, "in", "out")
        consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "loop", "enable.auto.commit": False})
        consumer.subscribe(["in"])
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), PATIENCE_S, "nothing is assigned")
        # Asks who there is often enough to hear of a broker that is gone, and remembers coordinators as long as by default.
        often = {"topic.metadata.refresh.interval.ms": 250, "metadata.max.age.ms": 900_000}
        producer = Producer({"bootstrap.servers": cluster.kafka, "transactional.id": "loop", **often})
        producer.init_transactions(PATIENCE_S)
        for is_killed in (True, False):
            waiting = Waiting(producer, consumer)
            waiting.start()
            waiting.join(20)
            assert waiting.is_through
            if is_killed:
                kill(cluster, coordinator_of(cluster, "loop"))
        consumer.close()


def coordinator_of(cluster: ClusterUp, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    port = admin.describe_consumer_groups([group])[group].result(PATIENCE_S).coordinator.port
    names = ("node-1", "node-2", "node-3")
    return next(name for name in names if f":{port}" in (cluster.directory / name / "endpoints.json").read_text())
