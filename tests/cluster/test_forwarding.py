"""Doors whose clients cannot find a leader: whichever broker is asked passes the request on, once, and in order."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.clients import AsyncLogjamClient, MlogClient, RetryPolicy, RustLogClient

NAMES = ("a", "b", "c")
PARTITIONS = 6
PATIENCE_S = 60.0
LOGJAM = {f"listen.logjam.{socket}": "127.0.0.1:0" for socket in ("router", "pull", "pub", "live")}


def rustlog(nodes: SharedNodes, name: str) -> RustLogClient:
    return RustLogClient(nodes.members[name].address_of("rustlog"), retry=RetryPolicy(attempts_max=40))


async def made(nodes: SharedNodes, topic: str) -> None:
    """The topic, open everywhere: every broker leads some of it."""
    async with rustlog(nodes, "a") as client:
        await client.create_topic(topic, partitions=PARTITIONS)
    await opened(nodes, topic)


async def opened(nodes: SharedNodes, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for name in NAMES:
            topics = nodes.members[name].broker.topics
            while (found := topics.find(topic)) is None or any(
                topics.is_being_opened(found, index) for index in range(PARTITIONS)
            ):
                await asyncio.sleep(0.01)
            assert {*found.leaders} == {*NAMES}


async def test_rustlog_writes_reads_and_describes_every_partition_through_any_broker(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES) as nodes:
        await made(nodes, "orders")
        async with rustlog(nodes, "a") as client:
            for partition in range(PARTITIONS):
                answer = await client.produce("orders", [b"1", b"2"], partition=partition)
                assert (answer.base_offset, answer.record_count) == (0, 2)
                assert (await client.produce("orders", [], partition=partition)).base_offset == 2
        async with rustlog(nodes, "b") as client:
            for partition in range(PARTITIONS):
                found = await client.fetch("orders", partition=partition, offset=0)
                assert [each.payload for each in found.records] == [b"1", b"2"]
                assert (await client.fetch("orders", partition=partition, offset=2)).records == []
        async with rustlog(nodes, "c") as client:
            described = await client.describe_topic("orders")
            assert [each.high_watermark for each in described.partitions] == [2] * PARTITIONS
            for partition in range(PARTITIONS):
                assert (await client.describe_partition("orders", partition)).high_watermark == 2


async def test_what_one_connection_sends_without_waiting_stays_in_order(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES) as nodes:
        await made(nodes, "orders")
        (partition, _) = next(
            (index, leader)
            for index, leader in enumerate(nodes.members["a"].broker.topics.get("orders").leaders)
            if leader != "a"
        )
        host, _, port = nodes.members["a"].address_of("rustlog").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in range(100):
            body = b'{"type":"Produce","topic":"orders","partition":%d,"records":["%s"]}' % (
                partition,
                base64.b64encode(b"%d" % number),
            )
            writer.write(len(body).to_bytes(4, "big") + body)
        offsets = []
        for _ in range(100):
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            offsets.append(json.loads(answer)["base_offset"])
        writer.close()
        assert offsets == list(range(100))
        leader = nodes.members["a"].broker.topics.get("orders").leaders[partition]
        with RawKafka(nodes.members[leader].address) as client:
            records = await asyncio.to_thread(client.read_all, "orders", partition)
        assert [each.value for each in records] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("is_durable", [True, False])
async def test_offsets_of_rustlog_are_the_same_through_any_broker(tmp_path: Path, is_durable: bool) -> None:
    settings = {"rustlog.offsets.durable": str(is_durable).lower()}
    async with shared_nodes(tmp_path, NAMES, settings) as nodes:
        await made(nodes, "orders")
        for number, group in enumerate(("g1", "g2", "g3", "g4")):
            async with rustlog(nodes, NAMES[number % 3]) as client:
                assert await client.commit(group, "orders", offset=number + 5, partition=1)
            for name in NAMES:
                async with rustlog(nodes, name) as client:
                    assert await client.committed(group, "orders", partition=1) == number + 5


@pytest.mark.requirement("R1.62")
async def test_offsets_of_mlog_are_the_same_through_any_broker(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES) as nodes:
        await made(nodes, "orders")

        def mlog(name: str) -> MlogClient:
            return MlogClient([nodes.members[name].address_of("mlog")], retry=RetryPolicy(attempts_max=40))

        for number, consumer in enumerate(("c1", "c2", "c3", "c4")):
            async with mlog(NAMES[number % 3]) as client:
                await client.commit_offset("orders", offset=number + 7, consumer_id=consumer)
            for name in NAMES:
                async with mlog(name) as client:
                    assert await client.fetch_offset("orders", consumer_id=consumer) == number + 7


async def test_logjam_keeps_messages_whoever_leads_their_stream(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES, LOGJAM) as nodes:
        for name in NAMES:
            host, port = nodes.members[name].node.endpoints["logjam_router"]
            async with AsyncLogjamClient(f"tcp://{host}:{port}") as client:
                for number in range(3):
                    await client.request("shop-live", "logs", b'{"from":"%s","number":%d}' % (name.encode(), number))
        topics = nodes.members["a"].broker.topics
        async with asyncio.timeout(PATIENCE_S):
            while (topic := topics.find("logjam-shop-live")) is None:
                await asyncio.sleep(0.01)
            leader = nodes.members[topic.leaders[0]]
            while (led := leader.broker.topics.find(topic.name)) is None or led.partitions[0].removed:
                await asyncio.sleep(0.01)
            records: list[bytes | None] = []
            while len(records) < 9:
                with RawKafka(leader.address) as kafka:
                    records = [each.value for each in await asyncio.to_thread(kafka.read_all, topic.name, 0)]
        for name in NAMES:
            own = [value for value in records if f'"{name}"'.encode() in (value or b"")]
            assert own == [b'{"from":"%s","number":%d}' % (name.encode(), number) for number in range(3)]
