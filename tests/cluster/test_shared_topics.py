"""Several brokers over one metastore: who leads what, and what happens when that changes. Real clients, real nodes."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.raw_kafka import Producer as Identified
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.control.cluster import Cluster
from headrace.doors.kafka.handlers import produce as produce_handler
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse

TIMEOUT_S = 60.0
NOT_LEADER = 6
OUT_OF_ORDER = 45


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def leaders(bootstrap: str, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S)
    return [each.leader for _, each in sorted(found.topics[topic].partitions.items())]


def produce(producer: Producer, topic: str, first: int, count: int) -> list[int]:
    """Numbers that were acknowledged."""
    acknowledged: list[int] = []
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=b"%d" % number,
            value=b"%d" % number,
            on_delivery=lambda error, message, number=number: acknowledged.append(number) if error is None else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    return acknowledged


def read_all(bootstrap: str, topic: str, count: int, group: str = "readers") -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[int] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(int(value))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


async def test_partitions_are_spread_and_every_broker_says_so(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b", "c"]) as nodes:
        await asyncio.to_thread(create, nodes.members["a"].address, "orders", 6)
        for member in nodes.members.values():
            assert sorted(await asyncio.to_thread(leaders, member.address, "orders")) == [1, 1, 2, 2, 3, 3]
        producer = Producer({"bootstrap.servers": nodes.members["b"].address, "enable.idempotence": True})
        acknowledged = await asyncio.to_thread(produce, producer, "orders", 0, 300)
        assert sorted(acknowledged) == list(range(300))
        assert sorted(await asyncio.to_thread(read_all, nodes.members["c"].address, "orders", 300)) == list(range(300))


async def test_brokers_that_are_asked_for_a_coordinator_at_once_name_the_same_one(tmp_path: Path) -> None:
    """All of them set out to make the topic, and one is the first."""
    async with shared_nodes(tmp_path, ["a", "b", "c"]) as nodes:

        def ask(address: str) -> tuple[int, int]:
            with RawKafka(address) as client:
                answer = client.call(
                    FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse
                )
                return answer.coordinators[0].error_code, answer.coordinators[0].node_id

        found = await asyncio.gather(*(asyncio.to_thread(ask, each.address) for each in nodes.members.values()))
        assert len(set(found)) == 1
        assert found[0][0] == 0


async def test_a_fenced_broker_promises_nothing_and_its_partitions_go_on_elsewhere(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b", "c"]) as nodes:
        await asyncio.to_thread(create, nodes.bootstrap, "orders", 6)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        acknowledged = await asyncio.to_thread(produce, producer, "orders", 0, 500)
        await take_away(nodes, "b", ["a", "c"])
        acknowledged += await asyncio.to_thread(produce, producer, "orders", 500, 500)
        assert sorted(acknowledged) == list(range(1000))
        found = await asyncio.to_thread(read_all, nodes.members["a"].address, "orders", 1000)
        assert sorted(found) == list(range(1000))
        assert 2 not in await asyncio.to_thread(leaders, nodes.members["a"].address, "orders")


async def test_what_was_sent_to_the_former_leader_is_known_to_the_next(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ["a", "b"]) as nodes:
        with RawKafka(nodes.members["a"].address) as client:
            await asyncio.to_thread(client.create_topic, "orders", 2)
        former, following = (
            ["a", "b"][await leader_of(nodes, "orders") - 1],
            ["b", "a"][await leader_of(nodes, "orders") - 1],
        )
        with RawKafka(nodes.members[former].address) as client:
            producer = await asyncio.to_thread(client.init_producer)
            sent = [batch_of(producer, sequence) for sequence in range(3)]
            first = [await until_led(nodes, former, batch) for batch in sent]
        assert [each.base_offset for each in first] == [0, 1, 2]
        await take_away(nodes, former, [following])
        again = await until_led(nodes, following, sent[2])
        assert (again.error_code, again.base_offset) == (0, 2)
        new = await until_led(nodes, following, batch_of(producer, 3))
        assert (new.error_code, new.base_offset) == (0, 3)
        gap = await until_led(nodes, following, batch_of(producer, 9))
        assert gap.error_code == OUT_OF_ORDER
        with RawKafka(nodes.members[following].address) as client:
            records = await asyncio.to_thread(client.read_all, "orders", 0)
            assert [each.value for each in records] == [b"0", b"1", b"2", b"3"]
        with RawKafka(nodes.members[former].address) as client:
            refused = await asyncio.to_thread(client.produce, "orders", 0, batch_of(producer, 4))
            assert refused.error_code == NOT_LEADER
            assert (await asyncio.to_thread(client.fetch, "orders", 0, 0)).error_code == NOT_LEADER


async def test_a_retry_is_known_where_the_saved_state_is_older_than_the_last_batches(tmp_path: Path) -> None:
    """What came behind it is in the objects' footers: the next leader reads no record, and neither doubles nor refuses anything."""
    async with shared_nodes(tmp_path, ["a", "b"]) as nodes:
        with RawKafka(nodes.members["a"].address) as client:
            await asyncio.to_thread(client.create_topic, "orders", 2)
        number = await leader_of(nodes, "orders")
        former, following = ["a", "b"][number - 1], ["b", "a"][number - 1]
        with RawKafka(nodes.members[former].address) as client:
            producer = await asyncio.to_thread(client.init_producer)
        sent = [batch_of(producer, sequence) for sequence in range(9)]
        for batch in sent[:2]:
            await until_led(nodes, former, batch)
        await nodes.members[former].node.prepare_to_leave()
        for batch in sent[2:]:
            await until_led(nodes, former, batch)
        await take_away(nodes, former, [following])
        answers = [await until_led(nodes, following, batch) for batch in sent[4:]]
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, offset) for offset in range(4, 9)]
        new = await until_led(nodes, following, batch_of(producer, 9))
        assert (new.error_code, new.base_offset) == (0, 9)
        assert nodes.members[following].node.metrics.snapshot()["headrace_tier_fetched_bytes_total"] == 0


async def test_a_batch_waits_for_the_partition_that_is_just_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_handler, "_OPENING_S", TIMEOUT_S)
    async with shared_nodes(tmp_path, ["a", "b"]) as nodes:
        with RawKafka(nodes.members["a"].address) as client:
            await asyncio.to_thread(client.create_topic, "orders", 1)
            producer = await asyncio.to_thread(client.init_producer)
        number = await leader_of(nodes, "orders")
        former, following = ["a", "b"][number - 1], ["b", "a"][number - 1]
        assert (await until_led(nodes, former, batch_of(producer, 0))).base_offset == 0
        may_open, open_partitions = asyncio.Event(), Cluster.open_partitions

        async def held(cluster: Cluster, ends: Mapping[tuple[str, int], int]) -> None:
            await may_open.wait()
            await open_partitions(cluster, ends)

        monkeypatch.setattr(Cluster, "open_partitions", held)
        await take_away(nodes, former, [following])
        address = nodes.members[following].address
        while await asyncio.to_thread(leaders, address, "orders") != [3 - number]:
            await asyncio.sleep(0.01)
        with RawKafka(address) as client:
            answer = asyncio.create_task(asyncio.to_thread(client.produce, "orders", 0, batch_of(producer, 1)))
            assert not (await asyncio.wait({answer}, timeout=0.3))[0]
            may_open.set()
            assert ((await answer).error_code, (await answer).base_offset) == (0, 1)


def batch_of(producer: Identified, sequence: int) -> bytearray:
    return build_batch(
        [NewRecord(value=b"%d" % sequence)],
        now_ms=1_700_000_000_000,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )


async def leader_of(nodes: SharedNodes, topic: str) -> int:
    return (await asyncio.to_thread(leaders, nodes.bootstrap, topic))[0]


async def until_led(nodes: SharedNodes, name: str, batch: bytearray) -> PartitionProduceResponse:
    """The answer of the broker, once it knows that it leads the partition."""
    with RawKafka(nodes.members[name].address) as client:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answer = await asyncio.to_thread(client.produce, "orders", 0, batch)
                if answer.error_code != NOT_LEADER:
                    return answer


async def take_away(nodes: SharedNodes, source: str, targets: list[str]) -> None:
    await nodes.fence(source)
    await nodes.move(source, targets)
