"""Offsets whose records were lost with a disk are spanned by empty batches, and every client reads on behind them."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.support.java_kafka import KafkaTools
from tests.support.kafka_clients import KafkaConsumer, PythonPartition
from tests.support.node import NodeProcess
from tests.support.outages import wait_uploaded
from tests.support.raw_kafka import EARLIEST, LATEST, RawKafka, batch_of

from headrace.bench import maven
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Put
from headrace.node.metastore import METASTORE_FILE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("lost_offsets")]
TOPIC = "t"
SECONDS_MAX = 90.0
FAR = 5_000_000_000
"""Further than one batch can span."""
NEAR = FAR + (1 << 28)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Ten records, lost offsets that are in object storage, ten records, lost offsets that only the WAL has."""
    directory = tmp_path_factory.mktemp("lost") / "data"
    node = NodeProcess(directory, {"tier.upload.interval.ms": 100}).start()
    try:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
        send(node, 0)
        lose_disk(node, ceiling=FAR)
        assert send(node, 10) == FAR
        node.settings["tier.upload.interval.ms"] = 3_600_000
        lose_disk(node, ceiling=NEAR)
        yield node
    finally:
        node.kill()


def send(node: NodeProcess, first: int) -> int:
    with RawKafka(node.kafka) as client:
        answer = client.produce(TOPIC, 0, batch_of([b"%d" % number for number in range(first, first + 10)]))
    assert answer.error_code == 0
    wait_uploaded(node)
    return answer.base_offset


def lose_disk(node: NodeProcess, *, ceiling: int) -> None:
    node.kill()
    shutil.rmtree(node.data_dir / "wal")
    asyncio.run(_raise_ceiling(node.data_dir / METASTORE_FILE, ceiling))
    node.start()


async def _raise_ceiling(path: Path, ceiling: int) -> None:
    store = await EmbeddedMetastore.open(path)
    await store.txn((), (Put(keys.ceiling(TOPIC, 0), values.encode(pb.PartitionOffset(offset=ceiling))),))
    await store.close()


WANTED = [b"%d" % number for number in range(20)]


def test_the_end_is_behind_everything_that_was_given_out(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        assert (client.offset_at(TOPIC, 0, EARLIEST), client.offset_at(TOPIC, 0, LATEST)) == (0, NEAR)
        assert [record.value for record in client.read_all(TOPIC, 0, may_miss=True)] == WANTED


def test_kcat_reaches_the_end(node: NodeProcess) -> None:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")
    command = [program, "-b", node.kafka, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q"]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == WANTED


@pytest.mark.parametrize("door", ["kafka", "rustlog", "mlog"])
def test_the_command_line_reaches_the_end(node: NodeProcess, door: str) -> None:
    command = [sys.executable, "-m", "headrace", "consume", TOPIC, "--no-follow", "--from-beginning"]
    command += ["--door", door, "--address", node.endpoints[door]]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == WANTED


def test_librdkafka_reaches_the_end(node: NodeProcess) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "rd", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            assert message.offset() == NEAR
            break
        assert error is None, error
        found.append(message.value())
    consumer.close()
    assert found == WANTED


def test_kafka_python_reaches_the_end(node: NodeProcess) -> None:
    consumer = KafkaConsumer(bootstrap_servers=node.kafka, enable_auto_commit=False)
    place = PythonPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS_MAX
    while consumer.position(place) < NEAR and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found += [record.value for record in records]
    assert (consumer.position(place), found) == (NEAR, WANTED)
    consumer.close()


async def test_aiokafka_reaches_the_end(node: NodeProcess) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=node.kafka, enable_auto_commit=False)
    await consumer.start()
    place = AioPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found: list[bytes | None] = []
    deadline = time.monotonic() + SECONDS_MAX
    while await consumer.position(place) < NEAR and time.monotonic() < deadline:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            found += [record.value for record in records]
    assert (await consumer.position(place), found) == (NEAR, WANTED)
    await consumer.stop()


def test_java_reaches_the_end_and_has_no_lag(node: NodeProcess) -> None:
    tools, server = KafkaTools(maven.KAFKA_NEWEST), ("--bootstrap-server", node.kafka)
    reading = ("--topic", TOPIC, "--group", "java", "--from-beginning", "--timeout-ms", "20000")
    printed = tools.run("kafka-console-consumer", *server, *reading)
    assert [line.encode() for line in printed.split() if line.isdigit()] == WANTED
    (row,) = [
        line.split()
        for line in tools.run("kafka-consumer-groups", *server, "--describe", "--group", "java").splitlines()
        if f" {TOPIC} " in line
    ]
    assert row[2:6] == ["0", str(NEAR), str(NEAR), "0"]
