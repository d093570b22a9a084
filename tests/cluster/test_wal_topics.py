"""`wal` topics of several brokers over one metastore: where their records are, and what happens to them. Real clients, real nodes."""

import asyncio
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.test_shared_topics import TIMEOUT_S, produce, read_all
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.clock import SystemClock
from headrace.control.cluster import Cluster
from headrace.control.topics import PartitionEntry
from headrace.errors import NotLeader

QUIET = {"tier.upload.interval.ms": "3600000"}
"""Nothing is uploaded unless somebody asks for it: only the WAL has the records."""


def create_on_wal(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config={"durability": "wal"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)


async def entries(nodes: SharedNodes, topic: str) -> list[PartitionEntry]:
    cluster = await Cluster.load(nodes.store, SystemClock())
    return cluster.topics.get(topic).partitions


async def until_opened(nodes: SharedNodes, topic: str) -> list[PartitionEntry]:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await entries(nodes, topic)
            if all(each.ring_id for each in found):
                return found
            await asyncio.sleep(0.01)


async def written(nodes: SharedNodes, topic: str, first: int, count: int) -> Producer:
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 2})
    assert len(await asyncio.to_thread(produce, producer, topic, first, count)) == count
    return producer


async def test_a_broker_that_comes_back_with_its_wal_goes_on(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 4)
        producer = await written(nodes, "orders", 0, 400)
        before = await entries(nodes, "orders")
        await nodes.stop("b", is_clean=False)
        await nodes.start("b")
        after = await entries(nodes, "orders")
        assert [each.ring_id for each in after] == [each.ring_id for each in before]
        assert {each.leader for each in after} == {"a", "b"}
        assert len(await asyncio.to_thread(produce, producer, "orders", 400, 100)) == 100
        assert sorted(await asyncio.to_thread(read_all, nodes.bootstrap, "orders", 500)) == list(range(500))


async def test_a_lost_disk_costs_what_only_it_had_and_no_offset_twice(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 2)
        await written(nodes, "orders", 0, 100)
        kept = [index for index, each in enumerate(await entries(nodes, "orders")) if each.leader == "a"]
        await nodes.stop("b", is_clean=False)
        shutil.rmtree(tmp_path / "b")
        member = await nodes.start("b")
        lost = next(index for index in range(2) if index not in kept)
        async with asyncio.timeout(TIMEOUT_S):
            while (entry := (await entries(nodes, "orders"))[lost]).leader_epoch != entry.epoch_starts[-1][0]:
                await asyncio.sleep(0.01)
        assert entry.epoch_starts[-1][1] == 1 << 16
        assert not member.faults
        await written(nodes, "orders", 100, 100)
        found: set[int] = set()
        for name, index in (("a", kept[0]), ("b", lost)):
            with RawKafka(nodes.members[name].address) as client:
                found |= {int(each.value or b"") for each in await asyncio.to_thread(client.read_all, "orders", index)}
        assert set(range(100, 200)) < found < set(range(200))


async def test_a_ring_that_no_partition_is_in_is_begun_anew(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 1)
        await written(nodes, "orders", 0, 10)
        (before,) = await entries(nodes, "orders")
        await asyncio.to_thread(delete, nodes.bootstrap, "orders")
        await nodes.stop("a", is_clean=False)
        await nodes.start("a")
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "others", 1)
        (after,) = await until_opened(nodes, "others")
        assert after.ring_id not in (b"", before.ring_id)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


async def test_what_is_handed_over_is_in_no_wal_and_anybody_opens_it(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 4)
        producer = await written(nodes, "orders", 0, 200)
        handing_over = asyncio.ensure_future(nodes.members["b"].node.hand_over())
        async with asyncio.timeout(TIMEOUT_S):
            while any(each.leader == "b" and each.ring_id for each in await entries(nodes, "orders")):
                await asyncio.sleep(0.01)
            await nodes.move("b", ["a"])
            await handing_over
        assert len(await asyncio.to_thread(produce, producer, "orders", 200, 200)) == 200
        assert sorted(await asyncio.to_thread(read_all, nodes.members["a"].address, "orders", 400)) == list(range(400))


async def test_durability_stays_what_it_was(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 1)
        topics = nodes.members["a"].node._sharing._topics  # type: ignore[union-attr]
        with pytest.raises(Exception, match="stays what it was"):
            await topics.alter_config("orders", lambda known: {**known, "durability": "object"})


async def test_a_fence_that_nobody_set_for_a_takeover_stops_a_start(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a"], QUIET) as nodes:
        await asyncio.to_thread(create_on_wal, nodes.bootstrap, "orders", 1)
        await written(nodes, "orders", 0, 10)
        await nodes.stop("a", is_clean=False)
        fence = tmp_path / "a" / "wal" / "FENCE"
        fence.touch()
        with pytest.raises(NotLeader, match="nobody takes it over"):
            await nodes.start("a")
        fence.unlink()
        await nodes.start("a")
        assert sorted(await asyncio.to_thread(read_all, nodes.bootstrap, "orders", 10)) == list(range(10))
