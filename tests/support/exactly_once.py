"""A consume-transform-produce loop in a process of its own, and the node behind it: either is killed at work.

Each value of the topic `in` goes to `out` once, with `!` behind it, or the loop was not exactly once.
"""

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.ports import kept_port

NODE_SETTINGS: Final = {"group.initial.rebalance.delay.ms": 0}
PATIENCE_S: Final = 60.0
LIBRDKAFKA: Final = (sys.executable, "-m", "tests.support.exactly_once_worker")
"""The loop itself: called with bootstrap servers, both topics, group and transactional id."""
ROOT: Final = Path(__file__).resolve().parents[2]
_STEP: Final = 600
"""Values between two kills: more than the loop can have passed on by then, so that it is killed at work."""


@dataclass(slots=True)
class Loop:
    node: NodeProcess
    worker: "Worker"
    values: list[bytes]

    def check(self) -> None:
        """Let it come to its end; then every value is there once."""

        def is_finished() -> bool:
            self.worker.keep_running()
            return count_passed_on(self.node) == len(self.values)

        eventually(is_finished, 150, "the loop did not finish", self.worker.log.read_text)
        wait_for_markers(self.node, "out")
        assert Counter(read_committed(self.node, "out")) == Counter(value + b"!" for value in self.values)


@contextlib.contextmanager
def loop_under_kills(directory: Path, command: Sequence[str], *, victim: str, kills: int) -> Iterator[Loop]:
    """The loop, once `victim` (`worker` or `node`) was killed so many times, each time in the middle of it all."""
    chance = random.Random(victim)
    values = [b"%05d" % index for index in range((kills + 1) * _STEP)]
    # The clients must find the node again after a restart: its port has to stay.
    with (
        kept_port() as port,
        running_node(directory / "data", {**NODE_SETTINGS, "listen.kafka": f"127.0.0.1:{port}"}) as node,
    ):
        create(node, "in", "out")
        worker = Worker(node, directory / "worker.log", command)
        try:
            for number in range(kills):
                # By progress, not by the clock.
                written = count_written(node)
                fill(node, values[number * _STEP : (number + 1) * _STEP])
                wait_for_progress(node, worker, written + _STEP // 4)
                time.sleep(chance.uniform(0, 0.2))
                if victim == "worker":
                    worker.kill()
                    worker.keep_running()
                else:
                    node.kill()
                    node.start()
            fill(node, values[kills * _STEP :])
            yield Loop(node, worker, values)
        finally:
            worker.kill()


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

    def __init__(self, node: NodeProcess, log: Path, command: Sequence[str]) -> None:
        self._node = node
        self._command = command
        self.log = log
        self._process = self._start()

    def keep_running(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*self._command, self._node.kafka, "in", "out", "loop", "loop"], cwd=ROOT, stdout=output, stderr=output
            )
