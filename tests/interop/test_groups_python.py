"""Consumer groups through the two pure-Python clients: aiokafka speaks only old versions, kafka-python many new ones."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from tests.support.node import NodeProcess, eventually

with warnings.catch_warnings():
    # It loads its schemas through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.structs import OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.requirement("R3.10", "X4.1")
NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}
PATIENCE_S = 60.0


@pytest.fixture
async def filled(node: NodeProcess, topic: str) -> str:
    """The topic with a hundred records, written by aiokafka's idempotent producer."""
    producer = AIOKafkaProducer(bootstrap_servers=node.kafka, enable_idempotence=True)
    await producer.start()
    for index in range(100):
        await producer.send(topic, b"%d" % index, key=b"%d" % index)
    await producer.stop()
    return topic


async def test_aiokafka_group_shares_and_takes_over(node: NodeProcess, filled: str) -> None:
    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            filled,
            bootstrap_servers=node.kafka,
            group_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=60_000,
            heartbeat_interval_ms=200,
        )

    first, second = member(), member()
    await first.start()
    assert len({value async for value in take(first, 100)}) == 100
    await first.commit()
    await second.start()
    await settled(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert await second.committed(AioPartition(filled, 0)) is not None
    await first.stop()
    await settled(lambda: len(second.assignment()) == 4)
    await second.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> AsyncIterator[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(count):
            record = await consumer.getone()
            yield record.value


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.05)


def test_kafka_python_group_reads_commits_and_goes_on(node: NodeProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=node.kafka)
    for index in range(50):
        producer.send(topic, key=b"%d" % index, value=b"%d" % index)
    producer.flush(PATIENCE_S)
    producer.close()

    def consumer() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=node.kafka,
            group_id="pure",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=60_000,
            heartbeat_interval_ms=500,
        )

    first = consumer()
    seen: list[bytes] = []

    def has_all() -> bool:
        # Long: this client does not find its way back from a poll that ended while it was joining.
        for records in first.poll(timeout_ms=30_000).values():
            seen.extend(record.value for record in records)
        return len(seen) >= 50

    eventually(has_all, PATIENCE_S, "kafka-python read nothing")
    assert sorted(seen, key=int) == [b"%d" % index for index in range(50)]
    first.commit()
    first.close()
    second = consumer()
    assert second.poll(timeout_ms=1000) == {}
    parts = [TopicPartition(topic, index) for index in range(4)]
    assert sum(second.committed(part) or 0 for part in parts) == 50
    second.close()


def test_kafka_python_admin_manages_groups_and_topics(node: NodeProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=node.kafka)
    admin.create_topics([NewTopic("made-by-kafka-python", 2, 1)])
    consumer = KafkaConsumer(bootstrap_servers=node.kafka, group_id="managed", enable_auto_commit=False)
    part = TopicPartition("made-by-kafka-python", 0)
    consumer.assign([part])
    consumer.commit({part: OffsetAndMetadata(5, "note", -1)})
    consumer.close()
    assert "managed" in str(admin.list_groups())
    assert "managed" in str(admin.describe_groups(["managed"]))
    admin.delete_groups(["managed"])
    assert "managed" not in str(admin.list_groups())
    admin.delete_topics(["made-by-kafka-python"])
    admin.close()
