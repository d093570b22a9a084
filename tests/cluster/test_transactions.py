"""Transactions over several brokers: the coordinator is one of them, the partitions are led by others. Real clients, real nodes."""

import asyncio
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.shared_nodes import shared_nodes

PATIENCE_S = 60.0
NAMES = ["a", "b", "c"]


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, partitions: int, numbers: range) -> list[bytes]:
    """One transaction per number, over all partitions; every third is aborted. Values that were committed."""
    kept = []
    for number in numbers:
        producer.begin_transaction()
        values = [b"%d-%d" % (number, index) for index in range(partitions)]
        for index, value in enumerate(values):
            producer.produce(topic, value, partition=index)
        if number % 3:
            producer.commit_transaction(PATIENCE_S)
            kept += values
        else:
            producer.abort_transaction(PATIENCE_S)
    return kept


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """All there is, once no transaction is open any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    consumer.assign(places)
    found: list[bytes] = []
    ends: set[int] = set()
    end_s = time.monotonic() + PATIENCE_S
    while len(ends) < partitions and time.monotonic() < end_s:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value() or b"")
            continue
        place = TopicPartition(topic, message.partition() or 0)
        stable, all_of_it = position(consumer, place), consumer.get_watermark_offsets(place, PATIENCE_S)[1]
        if stable >= all_of_it:
            ends.add(place.partition)
        else:
            ends.discard(place.partition)
    consumer.close()
    assert len(ends) == partitions, "a transaction stays open"
    return found


def position(consumer: Consumer, place: TopicPartition) -> int:
    return int(consumer.position([place])[0].offset)


async def test_commits_are_seen_whole_and_aborts_never_whoever_leads_and_coordinates(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES) as nodes:
        await asyncio.to_thread(create, nodes.bootstrap, "orders", 6)

        def run(name: str, first: int) -> list[bytes]:
            producer = transactional(nodes.bootstrap, name)
            return write(producer, "orders", 6, range(first, first + 5))

        kept = []
        for number, name in enumerate(("x", "y", "z")):
            kept += await asyncio.to_thread(run, name, 100 * number)
        found = await asyncio.to_thread(read_committed, nodes.bootstrap, "orders", 6)
        assert Counter(found) == Counter(kept)
        assert not any(member.faults for member in nodes.members.values())


def transform(bootstrap: str, name: str, count: int) -> None:
    """Read `in`, write the same to `out`, and commit the position in the same transaction, until `count` are through."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["in"])
    producer = transactional(bootstrap, name)
    done = 0
    end_s = time.monotonic() + PATIENCE_S
    while done < count and time.monotonic() < end_s:
        messages = consumer.consume(10, 0.5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None
            producer.produce("out", message.value(), partition=message.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
        )
        producer.commit_transaction(PATIENCE_S)
        done += len(messages)
    consumer.close()


def committed(bootstrap: str, group: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = consumer.committed([TopicPartition("in", index) for index in range(partitions)], PATIENCE_S)
    consumer.close()
    return sum(max(place.offset, 0) for place in places)


def fill(bootstrap: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce("in", b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


async def test_positions_are_committed_with_the_records_though_group_and_transaction_have_other_coordinators(
    tmp_path: Path,
) -> None:
    """Two partitions of each internal topic over three brokers: among four names every combination occurs."""
    async with shared_nodes(tmp_path, NAMES) as nodes:
        for topic in ("in", "out"):
            await asyncio.to_thread(create, nodes.bootstrap, topic, 3)
        await asyncio.to_thread(fill, nodes.bootstrap, 30, 3)
        names = ["loop-1", "loop-2", "loop-3"]
        for name in names:
            await asyncio.to_thread(transform, nodes.bootstrap, name, 30)
        found = await asyncio.to_thread(read_committed, nodes.bootstrap, "out", 3)
        assert Counter(found) == {b"%d" % number: len(names) for number in range(30)}
        for name in names:
            assert await asyncio.to_thread(committed, nodes.bootstrap, name, 3) == 30


async def test_a_transaction_survives_the_loss_of_its_coordinator_and_of_leaders(tmp_path: Path) -> None:
    """Each broker in turn loses all it has, in the middle of transactions."""
    async with shared_nodes(tmp_path, NAMES) as nodes:
        await asyncio.to_thread(create, nodes.bootstrap, "orders", 6)
        producer = await asyncio.to_thread(transactional, nodes.bootstrap, "x")
        kept = []
        for number, name in enumerate(NAMES):
            await asyncio.to_thread(producer.begin_transaction)
            values = [b"%d-%d" % (number, index) for index in range(6)]
            for index, value in enumerate(values[:3]):
                producer.produce("orders", value, partition=index)
            assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
            await nodes.move(name, [each for each in NAMES if each != name])
            for index, value in enumerate(values[3:], start=3):
                producer.produce("orders", value, partition=index)
            if number != 1:
                await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
                kept += values
            else:
                await asyncio.to_thread(producer.abort_transaction, PATIENCE_S)
        kept += await asyncio.to_thread(write, producer, "orders", 6, range(10, 13))
        found = await asyncio.to_thread(read_committed, nodes.bootstrap, "orders", 6)
        assert Counter(found) == Counter(kept)
        assert not any(member.faults for member in nodes.members.values())
