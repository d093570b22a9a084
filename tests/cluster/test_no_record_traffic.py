"""Records reach the bucket from the broker that leads them, and clients from there: brokers do not pass them to each other."""

import asyncio
from pathlib import Path

import pytest
from tests.cluster.test_forwarding import NAMES, PARTITIONS, opened, rustlog
from tests.support.kafka_clients import Sent, read_confluent, write_confluent
from tests.support.shared_nodes import SharedNodes, shared_nodes

COUNT = 3_000


def bytes_between(nodes: SharedNodes) -> int:
    """What all links have carried, as their metrics tell it to an operator."""
    scraped = [each.broker.metrics.render().decode() for each in nodes.members.values()]
    lines = [
        line for text in scraped for line in text.splitlines() if line.startswith("headrace_link_sent_bytes_total")
    ]
    assert len(lines) == len(NAMES)
    return sum(int(float(line.split()[1])) for line in lines)


@pytest.mark.requirement("R3.4")
@pytest.mark.parametrize("durability", ["object", "wal"])
async def test_no_record_passes_between_brokers(tmp_path: Path, durability: str) -> None:
    async with shared_nodes(tmp_path, NAMES) as nodes:
        topics = nodes.members["a"].broker.topics
        await topics.create("orders", partitions=PARTITIONS, config={"durability": durability})
        await opened(nodes, "orders")
        before = bytes_between(nodes)
        records = [Sent(b"%d " % number + bytes(1_000), partition=number % PARTITIONS) for number in range(COUNT)]
        await asyncio.to_thread(write_confluent, nodes.bootstrap, "orders", records, "none")
        found = await asyncio.to_thread(read_confluent, nodes.bootstrap, "orders", range(PARTITIONS), COUNT)
        assert {each.record.value for each in found} == {each.value for each in records}
        assert bytes_between(nodes) == before
        # One that does: RustLog's clients cannot find leaders. So the metric tells.
        async with rustlog(nodes, "a") as client:
            for partition in range(PARTITIONS):
                await client.produce("orders", [bytes(10_000)], partition=partition)
        assert bytes_between(nodes) > before + 10_000
