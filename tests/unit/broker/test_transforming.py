"""Lanes: batches of a partition go through its module one at a time, in order, once; and nothing gets around it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support import wasm
from tests.support.logs import NOW_MS, batch_of, opened, turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.blob.memory import MemoryBlobStore
from headrace.broker.dead_letters import DeadLetters
from headrace.broker.deferred import Deferred
from headrace.broker.produce import Acknowledgement, Acks, Appended, Produce
from headrace.broker.topics import Topic, Topics
from headrace.broker.transforming import LANE_BYTES_MAX, Transforming
from headrace.chance import SYSTEM_CHANCE
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Concurrent, Invalid, NotReady, OutOfOrderSequence, TransformFailed
from headrace.log.policy import TopicPolicy, plain_size_max
from headrace.records.record import read_records
from headrace.transforms.modules import Modules
from headrace.transforms.service import Transforms
from headrace.transforms.settings import WasmSettings

MODULE = "wasm.module.id"


class SlowTransforms(Transforms):
    """Modules that take as long as a test likes; what they make says which module it was."""

    def __init__(self, modules: Modules) -> None:
        super().__init__(WasmSettings(), modules, ManualClock(NOW_MS))
        self.asked: list[tuple[str, bytes]] = []
        self.gate: asyncio.Event = asyncio.Event()
        self.failure: TransformFailed | None = None

    async def run(self, module_id: str, batch: bytes, **_: Any) -> bytes:
        value = next(iter(read_records(batch))).value or b""
        self.asked.append((module_id, value))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return batch


class World:
    def __init__(self, topics: Topics, produce: Produce, transforms: SlowTransforms) -> None:
        self.topics = topics
        self.produce = produce
        self.transforms = transforms
        self.topic: Topic = cast(Topic, None)

    @property
    def transforming(self) -> Transforming:
        assert self.produce.transforming is not None
        return self.produce.transforming

    async def assign(self, module: str, **more: str) -> None:
        await self.topics.alter_config("orders", lambda _: {MODULE: module, **more} if module else {})

    def send(self, value: bytes, **options: int) -> Deferred[Appended]:
        batch = bytes(batch_of(value, **options))
        return self.produce.append_transformed(self.topic.partitions[0], batch)

    async def read(self, name: str = "orders") -> list[bytes | None]:
        partition = self.topics.get(name).partitions[0]
        if not partition.end_offset:
            return []
        read = partition.read_tail(0, 1 << 20, partition.end_offset, at_least_one=True)
        return [record.value for piece in read.slices for record in read_records(piece)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    metastore, clock = await EmbeddedMetastore.open(), ManualClock(NOW_MS)
    cluster = await Cluster.load(metastore, clock)
    await cluster.register("b1", pb.BrokerRegistration(host="localhost"))
    modules = Modules(cluster, MemoryBlobStore(clock), clock, SYSTEM_CHANCE)
    for code in (b"one", b"two"):
        await modules.add("m", code, takes_batches=True)
    async with opened(tmp_path, partitions=0, wal_capacity_bytes=(32 << 20) + 8192) as log:
        topics = Topics(cluster, log.store, defaults={})
        produce = Produce(log.store, clock)
        transforms = SlowTransforms(modules)
        produce.transforming = Transforming(
            transforms, topics, DeadLetters(topics, log.store, clock), clock, wait_for_log=log.store.room_for
        )
        made = World(topics, produce, transforms)
        made.topic = await topics.create("orders", partitions=2, config={MODULE: "m_v1"})
        yield made
        await produce.transforming.stop()
        await turn_of_the_loop(3)
    await metastore.close()


def test_a_topic_with_a_module_is_not_plain() -> None:
    assert plain_size_max(TopicPolicy()) > 0
    assert plain_size_max(TopicPolicy(wasm_module_id="m_v1")) == 0


async def test_no_fast_path_and_no_slow_one_gets_around_the_module(world: World) -> None:
    partition = world.topic.partitions[0]
    assert "orders" not in world.topics.open_to_clients
    assert partition.plain_size_max == 0
    with pytest.raises(Concurrent):
        partition.append(batch_of(b"x"), now_ms=NOW_MS)
    with pytest.raises(Concurrent):
        world.produce.append(partition, batch_of(b"x"), acks=Acks.NONE, ack=Acknowledgement())
    with pytest.raises(Concurrent):
        partition.append_transformed(batch_of(b"x"), made_by="m_v2", now_ms=NOW_MS)
    assert partition.end_offset == 0


async def test_without_anybody_to_run_it_a_module_still_holds(world: World) -> None:
    partition = world.topic.partitions[0]
    world.produce.transforming, kept = None, world.transforming
    try:
        with pytest.raises(Concurrent):
            world.produce.append_built(partition, batch_of(b"x"))
    finally:
        world.produce.transforming = kept


async def test_batches_land_in_the_order_they_came(world: World) -> None:
    sent = [world.send(b"%d" % number) for number in range(5)]
    await turn_of_the_loop(3)
    assert world.transforms.asked == [("m_v1", b"0")], "one at a time"
    world.transforms.gate.set()
    assert [(await each).base_offset for each in sent] == [0, 1, 2, 3, 4]
    assert await world.read() == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_partition_does_not_wait_for_another(world: World) -> None:
    first = world.send(b"a")
    second = world.produce.append_transformed(world.topic.partitions[1], bytes(batch_of(b"b")))
    await turn_of_the_loop(3)
    assert len(world.transforms.asked) == 2
    world.transforms.gate.set()
    assert ((await first).base_offset, (await second).base_offset) == (0, 0)


async def test_a_switch_in_between_has_the_batch_transformed_anew(world: World) -> None:
    sent = world.send(b"a")
    await turn_of_the_loop(3)
    await world.assign("m_v2")
    world.transforms.gate.set()
    await sent
    assert world.transforms.asked == [("m_v1", b"a"), ("m_v2", b"a")]
    assert await world.read() == [b"a"]


async def test_nothing_overtakes_what_still_waits_when_the_module_is_taken_away(world: World) -> None:
    sent = [world.send(b"a"), world.send(b"b")]
    await turn_of_the_loop(3)
    await world.assign("")
    partition = world.topic.partitions[0]
    assert world.produce.is_transformed(partition)
    assert "orders" not in world.topics.open_to_clients, "the kernel must not take what comes now"
    sent.append(world.send(b"c"))
    world.transforms.gate.set()
    assert [(await each).base_offset for each in sent] == [0, 1, 2]
    assert world.transforms.asked == [("m_v1", b"a")]
    assert "orders" in world.topics.open_to_clients
    assert not world.produce.is_transformed(partition)


async def test_a_repetition_does_not_reach_the_module(world: World) -> None:
    world.transforms.gate.set()
    producer = {"producer_id": 7, "producer_epoch": 0}
    first = await world.send(b"a", **producer, base_sequence=0)
    again = await world.send(b"a", **producer, base_sequence=0)
    assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
    with pytest.raises(OutOfOrderSequence):
        await world.send(b"c", **producer, base_sequence=2)
    assert len(world.transforms.asked) == 1


async def test_a_repetition_that_comes_while_the_first_is_in_the_module_is_known(world: World) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    sent = [world.send(b"a", **producer) for _ in range(3)]
    await turn_of_the_loop(3)
    world.transforms.gate.set()
    assert [(await each).base_offset for each in sent] == [0, 0, 0]
    assert len(world.transforms.asked) == 1


async def test_what_the_module_fails_on_leaves_nothing_and_holds_up_nothing(world: World) -> None:
    world.transforms.gate.set()
    world.transforms.failure = TransformFailed("trapped")
    with pytest.raises(TransformFailed):
        await world.send(b"a")
    world.transforms.failure = None
    assert (await world.send(b"b")).base_offset == 0
    assert await world.read() == [b"b"]


async def test_a_dead_letter_is_kept_before_the_producer_hears_of_it(world: World) -> None:
    await world.topics.create("dead", partitions=1)
    await world.assign("m_v1", **{"wasm.dead.letter.topic": "dead"})
    world.transforms.gate.set()
    world.transforms.failure = TransformFailed("trapped")
    sequence = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    appended = await world.send(b"a", **sequence)
    assert (appended.base_offset, appended.end_offset) == (0, 1)
    assert world.topics.get("dead").partitions[0].durable_end == 1
    assert await world.read("dead") == [b"a"]
    assert await world.read() == []
    assert (await world.send(b"a", **sequence)).is_duplicate, "its sequence is taken"


@pytest.mark.parametrize("target", ["nowhere", "orders"])
async def test_a_dead_letter_that_nobody_takes_fails_the_produce(world: World, target: str) -> None:
    await world.assign("m_v1", **{"wasm.dead.letter.topic": target})
    world.transforms.gate.set()
    world.transforms.failure = TransformFailed("trapped")
    with pytest.raises(TransformFailed, match=f"trapped; and .*{target}"):
        await world.send(b"a")
    assert world.topic.partitions[0].end_offset == 0


async def test_dead_letters_do_not_go_around_a_module(world: World) -> None:
    await world.topics.create("dead", partitions=1, config={MODULE: "m_v2"})
    await world.assign("m_v1", **{"wasm.dead.letter.topic": "dead"})
    world.transforms.gate.set()
    world.transforms.failure = TransformFailed("trapped")
    with pytest.raises(Concurrent):
        await world.send(b"a")
    assert await world.read("dead") == []


async def test_a_lane_says_when_it_has_more_than_enough(world: World) -> None:
    partition = world.topic.partitions[0]
    large = bytes(batch_of(bytes(1_000_000)))
    sent = []
    while world.produce.has_transform_room(partition):
        sent.append(world.produce.append_transformed(partition, large))
    assert len(sent) * len(large) >= LANE_BYTES_MAX
    assert world.produce.has_transform_room(world.topic.partitions[1])
    told = asyncio.Event()
    world.transforming.when_room(told.set)
    for each in sent:
        each.then(lambda _: None)
    world.transforms.failure = TransformFailed("trapped")
    world.transforms.gate.set()
    await told.wait()
    assert world.produce.has_transform_room(partition)


async def test_who_waits_when_the_node_stops_is_told(world: World) -> None:
    sent = [world.send(b"a"), world.send(b"b")]
    await turn_of_the_loop(3)
    await world.transforming.stop()
    for each in sent:
        with pytest.raises(NotReady):
            await each
    with pytest.raises(NotReady):
        world.send(b"c")


async def test_internal_topics_get_no_module(world: World) -> None:
    with pytest.raises(Invalid, match="internal"):
        await world.topics.create_internal("__consumer_offsets", partitions=1, config={MODULE: "m_v1"})


async def test_a_real_module_runs_beside_the_loop(world: World) -> None:
    transforms = Transforms(WasmSettings(timeout_ms=50), world.transforms.modules, ManualClock(NOW_MS))
    module = await transforms.upload("upper", wasm.UPPER)
    made = await transforms.run(module.id, bytes(batch_of(b"abc")), topic="t", partition=0, keys_needed=False)
    assert [each.value for each in read_records(made)] == [b"ABC"]
    with pytest.raises(Invalid, match="not WebAssembly"):
        await transforms.upload("upper", b"x")
    endless = await transforms.upload("endless", wasm.ENDLESS)
    with pytest.raises(TransformFailed, match="was stopped"):
        await transforms.run(endless.id, bytes(batch_of(b"abc")), topic="t", partition=0, keys_needed=False)
    transforms.close()
