"""Transactions through real clients: outcomes, fencing, and exactly-once loops that are killed at any moment."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.ports import kept_port

NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}
PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    create(node, name)
    return name


def create(node: NodeProcess, *names: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    topics = [NewTopic(name, partitions, 1) for name in names]
    for future in admin.create_topics(topics).values():
        future.result(PATIENCE_S)


def read_committed(node: NodeProcess, topic: str, partitions: int = 2) -> list[bytes]:
    """Everything a read_committed consumer sees up to the first open transaction, or the end of the topic.

    For a topic that nobody writes to: the end is told only when nothing new has come for a while.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": f"reader-{time.monotonic_ns()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.2):
            if message.error():
                ended.add(message.partition())
            else:
                values.append(message.value())
    consumer.close()
    assert len(ended) == partitions, "the end was not reached"
    return values


def wait_for_markers(node: NodeProcess, topic: str, partitions: int = 2) -> None:
    """A commit is answered when it is decided; the markers that make it visible follow."""

    def end_of(index: int, isolation: str) -> int:
        consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "ends", "isolation.level": isolation})
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, index), PATIENCE_S)[1]
        consumer.close()
        return end

    for index in range(partitions):
        eventually(
            lambda index=index: end_of(index, "read_committed") == end_of(index, "read_uncommitted"),  # type: ignore[misc]
            PATIENCE_S,
            f"a transaction is open in {topic}-{index}",
        )


def transactional(node: NodeProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(PATIENCE_S)
    return producer


def test_librdkafka_sees_commits_and_never_aborts(node: NodeProcess, topic: str) -> None:
    producer = transactional(node, topic)
    kept = []
    for number in range(20):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, index) for index in range(5)]
        for value in values:
            producer.produce(topic, key=value, value=value)
        if number % 3:
            producer.commit_transaction(PATIENCE_S)
            kept += values
        else:
            producer.abort_transaction(PATIENCE_S)
    wait_for_markers(node, topic)
    assert Counter(read_committed(node, topic)) == Counter(kept)


def test_librdkafka_zombie_is_fenced(node: NodeProcess, topic: str) -> None:
    old = transactional(node, topic)
    old.begin_transaction()
    old.produce(topic, b"zombie")
    assert old.flush(PATIENCE_S) == 0
    new = transactional(node, topic)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"rightful")
    new.commit_transaction(PATIENCE_S)
    wait_for_markers(node, topic)
    assert read_committed(node, topic) == [b"rightful"]


async def test_aiokafka_commits_records_and_offsets_together(node: NodeProcess, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=node.kafka, transactional_id=topic)
    await producer.start()
    part = AioPartition(topic, 0)
    async with producer.transaction():
        await producer.send_and_wait(topic, b"kept", partition=0)
        await producer.send_offsets_to_transaction({part: 7}, "aio-transactions")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"gone", partition=0)
    await producer.send_offsets_to_transaction({part: 99}, "aio-transactions")
    await producer.abort_transaction()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=node.kafka, group_id="aio-transactions", isolation_level="read_committed"
    )
    await consumer.start()
    assert await consumer.committed(part) == 7
    consumer.assign([part])
    consumer.seek(part, 0)
    assert (await consumer.getone()).value == b"kept"
    await consumer.stop()
    assert read_committed(node, topic) == [b"kept"]


def test_crashed_producer_holds_nobody_up_for_longer_than_its_timeout(node: NodeProcess, topic: str) -> None:
    script = (
        "import sys, os; from confluent_kafka import Producer;"
        "p = Producer({'bootstrap.servers': sys.argv[1], 'transactional.id': 'crashes', 'transaction.timeout.ms': 1000});"
        "p.init_transactions(60); p.begin_transaction(); p.produce(sys.argv[2], b'lost', partition=0);"
        "p.flush(60); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, node.kafka, topic], check=False).returncode == 9
    other = Producer({"bootstrap.servers": node.kafka})
    other.produce(topic, b"plain", partition=0)
    assert other.flush(PATIENCE_S) == 0
    eventually(lambda: read_committed(node, topic) == [b"plain"], PATIENCE_S, "the crashed transaction holds the LSO")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "node"])
def test_consume_transform_produce_stays_exactly_once_under_kill(tmp_path: Path, victim: str) -> None:
    """Workers or the node are killed a few times in the middle of it all; every record comes out exactly once."""
    chance = random.Random(victim)
    values = [b"%04d" % index for index in range(2000)]
    # The clients must find the node again after a restart: its port has to stay.
    with (
        kept_port() as port,
        running_node(tmp_path / "data", {**NODE_SETTINGS, "listen.kafka": f"127.0.0.1:{port}"}) as node,
    ):
        create(node, "in", "out")
        worker = Worker(node, tmp_path / "worker.log")
        try:
            for round_number in range(2):
                # By progress, not by the clock, and more than it can have passed on by then: it is killed at work.
                written = count_written(node)
                fill(node, values[round_number * 800 : (round_number + 1) * 800])
                wait_for_progress(node, worker, written + 200)
                time.sleep(chance.uniform(0, 0.2))
                if victim == "worker":
                    worker.kill()
                    worker.keep_running()
                else:
                    node.kill()
                    node.start()
            fill(node, values[1600:])
            expected = Counter(value + b"!" for value in values)

            def is_finished() -> bool:
                worker.keep_running()
                return count_passed_on(node) == len(values)

            eventually(is_finished, 150, "the loop did not finish", worker.log.read_text)
            wait_for_markers(node, "out")
            assert Counter(read_committed(node, "out")) == expected
        finally:
            worker.kill()


def fill(node: NodeProcess, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for value in values:
        producer.produce("in", key=value, value=value)
    assert producer.flush(PATIENCE_S) == 0


def count_written(node: NodeProcess) -> int:
    """Records in the topic, markers and open transactions included: quick, and close enough to choose a moment."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "counter"})
    ends = [consumer.get_watermark_offsets(TopicPartition("out", index), timeout=PATIENCE_S)[1] for index in range(2)]
    consumer.close()
    return sum(ends)


def count_passed_on(node: NodeProcess) -> int:
    """Records whose offsets were committed together with what became of them."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "loop"})
    places = consumer.committed([TopicPartition("in", index) for index in range(2)], PATIENCE_S)
    consumer.close()
    return sum(max(each.offset, 0) for each in places)


def wait_for_progress(node: NodeProcess, worker: "Worker", count: int) -> None:
    def is_there() -> bool:
        worker.keep_running()
        return count_written(node) >= count

    eventually(is_there, PATIENCE_S, f"{count} records were not passed on", worker.log.read_text)


class Worker:
    """A loop in a process of its own that is started again when it has ended, as any supervisor would."""

    def __init__(self, node: NodeProcess, log: Path) -> None:
        self._node = node
        self.log = log
        self._process = self._start()

    def keep_running(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.exactly_once_worker"]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*command, self._node.kafka, "in", "out", "loop", "loop"], cwd=ROOT, stdout=output, stderr=output
            )
