"""A damaged object as other people's clients meet it: records in front of it, then an error that they report, until it is skipped."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.support.java_kafka import KafkaTools
from tests.support.node import SMALL_WAL, NodeProcess
from tests.support.outages import problems, wait_uploaded
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.bench import maven

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("damaged_objects")]
TOPIC = "t"
COUNT = 10
DAMAGED = 6
SECONDS_MAX = 60.0
IN_FRONT = [b"value %d" % number for number in range(DAMAGED)]
BEHIND = [b"value %d" % number for number in range(DAMAGED + 1, COUNT)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with damaged_node(tmp_path_factory.mktemp("damaged") / "data") as node:
        yield node


@contextmanager
def damaged_node(data_dir: Path) -> Iterator[NodeProcess]:
    """Ten batches, and the object with the seventh is damaged there."""
    node = NodeProcess(data_dir, {"tier.upload.interval.ms": 1000}).start()
    try:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
            for number in range(COUNT):
                assert client.produce(TOPIC, 0, batch_of([b"value %d" % number])).error_code == 0
        wait_uploaded(node)
        node.stop()
        damage(data_dir, b"value %d" % DAMAGED)
        yield node.start()
    finally:
        node.kill()


def damage(data_dir: Path, value: bytes) -> None:
    for path in (data_dir / "objects" / "data").rglob("*.hro"):
        data = path.read_bytes()
        if value in data:
            path.write_bytes(data.replace(value, value.upper()))
            return
    raise AssertionError(f"no object holds {value!r}")


def consume(node: NodeProcess, count: int) -> tuple[list[bytes], KafkaError | None]:
    """What librdkafka gives from the beginning, up to `count` records or an error."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "check", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    end = time.monotonic() + SECONDS_MAX
    try:
        while len(found) < count and time.monotonic() < end:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                return found, error
            found.append(message.value() or b"")
        return found, None
    finally:
        consumer.close()


def test_librdkafka_hands_the_error_to_the_application(node: NodeProcess) -> None:
    found, error = consume(node, COUNT)
    assert found == IN_FRONT
    assert error is not None
    assert error.code() == KafkaError.INVALID_MSG
    assert any(f"{TOPIC}-0: offsets {DAMAGED} to " in told and ".hro" in told for told in problems(node))


@pytest.mark.parametrize("version", [maven.KAFKA_NEWEST])
def test_javas_consumer_raises_it(node: NodeProcess, version: str) -> None:
    tools = KafkaTools(version)
    with tools.running(
        "kafka-console-consumer", "--bootstrap-server", node.kafka, "--topic", TOPIC, "--from-beginning"
    ) as consumer:
        consumer.wait_for(lambda lines: len(lines) >= DAMAGED)
        end = time.monotonic() + SECONDS_MAX
        while not any("corrupt message when fetching offset" in line for line in consumer.complaints):
            assert time.monotonic() < end, consumer.complaints
            time.sleep(0.1)
    assert [line.encode() for line in consumer.lines][:DAMAGED] == IN_FRONT


def test_clients_go_on_behind_what_was_skipped(tmp_path: Path) -> None:
    with damaged_node(tmp_path / "data") as node:
        node.stop()
        skip = ["tier", "skip", TOPIC, "0", str(DAMAGED), "--data-dir", str(node.data_dir)]
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *skip, "--set", f"wal.capacity.bytes={SMALL_WAL}"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        node.start()
        found, error = consume(node, COUNT - 1)
        assert error is None
        assert found == IN_FRONT + BEHIND
        assert problems(node) == []
