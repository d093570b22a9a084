"""What a controller does about the WAL of a broker that is gone: has it taken over, or gives it up when an operator says so."""

from collections.abc import AsyncIterator

import pytest
from tests.support.metastores import ManualClock
from tests.unit.control.controller.test_driver import World

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.controller.driver import Controller
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.topics import LOST_RING, PartitionEntry
from headrace.control.wal_plans import Place
from headrace.errors import Conflict, StaleEpoch

RING, OWN = b"r" * 16, b"o" * 16


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    home = await EmbeddedMetastore.open(clock=clock)
    yield World(home, clock)
    await home.close()


async def member(world: World, controller: Controller, name: str, machine: str) -> Cluster:
    registration = pb.BrokerRegistration(wal_path=f"/{name}/wal/ring", machine_id=machine)
    entered = await controller.register(name, registration, cluster_id="")
    cluster = await Cluster.load(world.home, world.clock)
    cluster.enter(entered.fence)
    await world.activate(controller, name)
    return cluster


async def on_wal(controller: Controller, cluster: Cluster) -> None:
    await cluster.create_topic("own", partitions=1, overrides={"durability": "wal"})
    await cluster.open_in_ring({("own", 0): Place(epoch=0, start=0, ring_id=RING, ring_start=0)})
    await controller._cluster.reload()


async def entry(world: World) -> PartitionEntry:
    return (await Cluster.load(world.home, world.clock)).topics.partition("own", 0)


async def takeover(world: World, owner: str) -> pb.Takeover | None:
    item = await world.home.get(keys.takeover(owner))
    return None if item is None else values.decode(pb.Takeover, item.value)


async def test_a_neighbour_is_told_and_what_it_does_ends_the_takeover(world: World) -> None:
    controller = await world.active()
    owner = await member(world, controller, "a", "m")
    await member(world, controller, "far", "elsewhere")
    near = await member(world, controller, "near", "m")
    await on_wal(controller, owner)
    await world.pass_ms(2_300, controller, "far", "near")
    begun = await takeover(world, "a")
    assert begun is not None
    assert (begun.taker, begun.ring_id, begun.wal_path) == ("near", RING, "/a/wal/ring")
    await near.reload()
    item = await world.home.get(keys.takeover("a"))
    assert item is not None
    guard = controller._takeovers.known["a"].guard()
    taken = {("own", 0): Place(epoch=0, start=7, ring_id=OWN, ring_start=4096)}
    await near.take_over(taken, owner="a", former_ring=RING, guard=guard)
    assert ((found := await entry(world)).leader, found.ring_id, found.ring_start) == ("near", OWN, 4096)
    assert found.epoch_starts[-1] == (1, 7)
    await controller._cluster.reload()
    await world.pass_ms(1_200, controller, "far", "near")
    done = await takeover(world, "a")
    assert done is not None
    assert done.is_done
    with pytest.raises(StaleEpoch):
        await owner.leave_ring({("own", 0): 0})


async def test_an_owner_that_registers_first_keeps_its_wal(world: World) -> None:
    controller = await world.active()
    owner = await member(world, controller, "a", "m")
    await on_wal(controller, owner)
    await world.pass_ms(2_300, controller)
    assert (await world.registration("a")).state == pb.FENCED
    await member(world, controller, "a", "m")
    await member(world, controller, "near", "m")
    await world.pass_ms(1_200, controller, "a", "near")
    assert await takeover(world, "a") is None


async def test_a_wal_is_given_up_only_when_its_broker_can_acknowledge_nothing_any_more(world: World) -> None:
    controller = await world.active()
    owner = await member(world, controller, "a", "m")
    await member(world, controller, "b", "elsewhere")
    await on_wal(controller, owner)
    with pytest.raises(Conflict, match="ACTIVE"):
        await controller.give_up_wal("a", cluster_id="")
    await world.pass_ms(60_000, controller, "b")
    with pytest.raises(Conflict, match="may still acknowledge"):
        await controller.give_up_wal("a", cluster_id="")
    assert (await entry(world)).ring_id == RING
    await world.pass_ms(9_000, controller, "b")
    assert await controller.give_up_wal("a", cluster_id="") == 1
    assert ((found := await entry(world)).leader, found.ring_id) == ("b", LOST_RING)
    with pytest.raises(Conflict, match="object storage has everything"):
        await controller.give_up_wal("a", cluster_id="")
    with pytest.raises(Conflict, match="no broker nobody is known"):
        await controller.give_up_wal("nobody", cluster_id="")


async def test_a_controller_that_is_active_since_a_moment_knows_nothing_of_silence(world: World) -> None:
    first = await world.active("c1")
    owner = await member(world, first, "a", "m")
    await on_wal(first, owner)
    await world.pass_ms(70_000, first)
    await first.stop()
    second = await world.active("c2")
    await second.decide()
    with pytest.raises(Conflict, match="may still acknowledge"):
        await second.give_up_wal("a", cluster_id="")


async def test_a_wal_that_an_operator_brings_is_read_by_the_broker_that_has_it(world: World) -> None:
    controller = await world.active()
    owner = await member(world, controller, "a", "m")
    await member(world, controller, "b", "elsewhere")
    await on_wal(controller, owner)

    async def adopt(ring_id: bytes = RING, taker: str = "b") -> int:
        return await controller.adopt("a", taker=taker, ring_id=ring_id, wal_path="/mnt/ring", cluster_id="")

    with pytest.raises(Conflict, match="ACTIVE"):
        await adopt()
    await world.pass_ms(2_300, controller, "b")
    with pytest.raises(Conflict, match="not the WAL"):
        await adopt(ring_id=OWN)
    with pytest.raises(Conflict, match="not active"):
        await adopt(taker="nobody")
    assert await adopt() == 1
    begun = await takeover(world, "a")
    assert begun is not None
    assert (begun.taker, begun.wal_path, begun.machine_id) == ("b", "/mnt/ring", "elsewhere")
    with pytest.raises(Conflict, match="is taking the WAL"):
        await controller.give_up_wal("a", cluster_id="")
