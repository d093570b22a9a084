"""Transactions through real clients: outcomes, fencing, and exactly-once loops that are killed at any moment."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import KafkaException, Producer
from tests.support.exactly_once import (
    LIBRDKAFKA,
    NODE_SETTINGS,
    PATIENCE_S,
    create,
    loop_under_kills,
    read_committed,
    wait_for_markers,
)
from tests.support.node import NodeProcess, eventually

__all__ = ["NODE_SETTINGS"]  # For the fixture that starts the node.


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    create(node, name)
    return name


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
    with loop_under_kills(tmp_path, LIBRDKAFKA, victim=victim, kills=2) as loop:
        loop.check()
