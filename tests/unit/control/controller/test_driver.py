"""Controllers over one store: who is active, what is written, and what a lost reply or a lost office leaves behind."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.metastores import LossyMetastore, ManualClock, NarrowMetastore

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.controller import driver
from headrace.control.controller.driver import Controller
from headrace.control.controller.machine import Machine, State
from headrace.control.controller.office import LEASE_MS, REFUSALS, Office
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Metastore, Put
from headrace.control.wal_plans import Place
from headrace.errors import Conflict, Invalid, NotReady, OutcomeUnknown, StaleEpoch

OBJECT = {"durability": "object"}


class World:
    """Controllers that take turns when told to, over one store and one clock."""

    def __init__(self, home: EmbeddedMetastore, clock: ManualClock) -> None:
        self.home = home
        self.clock = clock
        self.refused: set[str] = set()
        self.compacted: list[int] = []

    async def controller(self, name: str, store: Metastore | None = None) -> Controller:
        store = store or self.home
        office = Office(
            store,
            controller_id=name,
            endpoint=f"{name}:9093",
            clock=self.clock,
            is_refused=self._is_endpoint_refused,
        )
        controller = Controller(
            await Cluster.load(store, self.clock),
            Machine(),
            office,
            clock=self.clock,
            probe=self._is_refused,
            compact=self._compact,
        )
        await controller.read()
        return controller

    async def active(self, name: str = "c1", store: Metastore | None = None) -> Controller:
        controller = await self.controller(name, store)
        for _ in range(50):
            try:
                await controller.office.look()
            except OutcomeUnknown:
                continue
            if controller.office.is_held:
                return controller
        raise AssertionError("nobody became active")

    async def broker(self, controller: Controller, name: str) -> Cluster:
        """An active broker, as it sees the cluster."""
        entered = await controller.register(name, pb.BrokerRegistration(wal_path=name), cluster_id="")
        cluster = await Cluster.load(self.home, self.clock)
        cluster.enter(entered.fence)
        await self.activate(controller, name)
        return cluster

    async def activate(self, controller: Controller, name: str) -> None:
        epoch = (await self.registration(name)).broker_epoch
        ready = pb.BrokerRegistration(host=name, port_kafka=9092, advertised={"kafka": f"{name}:9092"})
        for _ in range(20):
            await controller.heartbeat(name, epoch, cluster_id="", ready=ready)
            await controller.decide()
            if (await self.registration(name)).state == pb.ACTIVE:
                return
        raise AssertionError(f"{name} did not become active")

    async def registration(self, name: str) -> pb.BrokerRegistration:
        item = await self.home.get(keys.broker(name))
        assert item is not None
        return values.decode(pb.BrokerRegistration, item.value)

    async def leaders(self, topic: str) -> list[tuple[str, int]]:
        fresh = await Cluster.load(self.home, self.clock)
        return [(each.leader, each.leader_epoch) for each in fresh.topics.get(topic).partitions]

    async def pass_ms(self, duration_ms: int, controller: Controller, *heard: str) -> None:
        for _ in range(duration_ms // 100):
            self.clock.advance(100)
            await self.home.expire_leases()
            try:
                await controller.office.look()
                await controller.decide()
            except (OutcomeUnknown, NotReady):
                continue
            for name in heard:
                epoch = (await self.registration(name)).broker_epoch
                await controller.heartbeat(name, epoch, cluster_id="", ready=None)

    async def _compact(self, revision: int) -> None:
        self.compacted.append(revision)

    async def _is_endpoint_refused(self, endpoint: str) -> bool:
        return endpoint in self.refused

    async def _is_refused(self, registration: pb.BrokerRegistration) -> bool:
        return registration.host in self.refused


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    home = await EmbeddedMetastore.open(clock=clock)
    yield World(home, clock)
    await home.close()


async def test_one_controller_is_active_and_the_others_know_who(world: World) -> None:
    controllers = [await world.controller(f"c{index}") for index in range(3)]
    for each in controllers:
        await each.office.look()
    assert [each.office.is_held for each in controllers] == [True, False, False]
    assert {each.office.holder.endpoint for each in controllers if each.office.holder} == {"c0:9093"}


@pytest.mark.parametrize("calls", range(1, 5))
async def test_a_lease_that_runs_out_in_the_midst_of_a_look_costs_no_controller(world: World, calls: int) -> None:
    """A process, or an etcd, that stood still for a while: what it goes on with is a lease that is no more."""
    controller = await world.controller("c1")
    store, made = world.home, 0
    get, grant, txn = store.get, store.grant_lease, store.txn

    def paused(call: Any) -> Any:
        async def after_a_pause(*arguments: Any) -> Any:
            nonlocal made
            made += 1
            if made == calls:
                world.clock.advance(2 * LEASE_MS)
                await store.expire_leases()
            return await call(*arguments)

        return after_a_pause

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "get", paused(get))
        patch.setattr(store, "grant_lease", paused(grant))
        patch.setattr(store, "txn", paused(txn))
        await controller.office.look()
    for _ in range(2):
        await controller.office.look()
    assert controller.office.is_held


async def test_the_next_takes_over_at_once_from_one_whose_process_is_gone_and_not_all_the_time(world: World) -> None:
    first = await world.active("c1")
    second = await world.controller("c2")
    for _ in range(REFUSALS):
        assert not second.office.is_held
        world.refused.add("c1:9093")
        await second.office.look()
    assert second.office.is_held, "nobody has waited for the lease"
    with pytest.raises(NotReady):
        await first.register("b1", pb.BrokerRegistration(), cluster_id="")
    assert not first.office.is_held
    world.refused.add("c2:9093")
    for _ in range(REFUSALS):
        await first.office.look()
    assert first.office.is_held, "it was never the one to depose somebody"
    for _ in range(REFUSALS):
        await second.office.look()
    assert not second.office.is_held, "where addresses lie, it has its way once"


async def test_the_next_takes_over_when_the_lease_has_run_out(world: World) -> None:
    first, second = await world.active("c1"), await world.controller("c2")
    world.clock.advance(LEASE_MS - 100)
    await world.home.expire_leases()
    await second.office.look()
    assert not second.office.is_held
    world.clock.advance(200)
    await world.home.expire_leases()
    await second.office.look()
    assert second.office.is_held
    assert not first.office.is_held


async def test_one_that_leaves_lets_another_in_at_once(world: World) -> None:
    first, second = await world.active("c1"), await world.controller("c2")
    await first.stop()
    await second.office.look()
    assert second.office.is_held


async def test_a_controller_that_comes_back_does_not_wait_for_its_own_lease(world: World) -> None:
    await world.active("c1")
    again = await world.controller("c1")
    await again.office.look()
    assert again.office.is_held


async def test_a_paused_controller_that_believes_to_be_active_writes_nothing(world: World) -> None:
    """Its clock has not moved, so it holds the office as far as it knows: the compare stops it."""
    first = await world.active("c1")
    await world.broker(first, "b1")
    await world.home.revoke_lease(first.office._lease.id)  # type: ignore[union-attr]
    second = await world.active("c2")
    assert first.office.is_held
    assert second.office.is_held
    with pytest.raises(NotReady, match="no longer active"):
        await first.register("b2", pb.BrokerRegistration(), cluster_id="")
    assert await world.home.get(keys.broker("b2")) is None
    assert not first.office.is_held


async def test_brokers_get_numbers_in_order_and_an_epoch_each_time(world: World) -> None:
    controller = await world.active()
    taken = [
        (await controller.register(name, pb.BrokerRegistration(host=name), cluster_id="")).registered
        for name in ("b1", "b2", "b1")
    ]
    assert [(each.numeric_id, each.broker_epoch) for each in taken] == [(1, 1), (2, 1), (1, 2)]
    assert (await world.registration("b1")).state == pb.STARTING


async def test_a_broker_that_is_ready_is_active_at_the_addresses_it_gives(world: World) -> None:
    controller = await world.active()
    await world.broker(controller, "b1")
    registration = await world.registration("b1")
    assert (registration.state, dict(registration.advertised)) == (pb.ACTIVE, {"kafka": "b1:9092"})
    assert await controller.heartbeat("b1", 1, cluster_id="", ready=None) is State.ACTIVE


async def test_a_silent_broker_is_fenced_and_can_commit_nothing_more(world: World) -> None:
    controller = await world.active()
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await first.create_topic("t", partitions=3, overrides=OBJECT)
    await controller._cluster.reload()
    await world.pass_ms(2_200, controller, "b2")
    assert (await world.registration("b1")).state == pb.FENCED
    assert await world.leaders("t") == [("b2", 1)] * 3
    with pytest.raises(StaleEpoch):
        await first.raise_leader_epochs()
    assert await controller.heartbeat("b1", 1, cluster_id="", ready=None) is None


async def test_one_whose_port_is_closed_is_fenced_before_its_session_ends(world: World) -> None:
    controller = await world.active()
    await world.broker(controller, "b1")
    world.refused.add("b1")
    await world.pass_ms(700, controller)
    await controller.probe_silent()
    await controller.decide()
    assert (await world.registration("b1")).state == pb.FENCED


async def test_a_fenced_broker_comes_back_under_a_new_epoch(world: World) -> None:
    controller = await world.active()
    await world.broker(controller, "b1")
    await world.pass_ms(2_200, controller)
    cluster = await world.broker(controller, "b1")
    assert cluster.fence.broker_epoch == 3, "fencing took one"
    assert (await world.registration("b1")).state == pb.ACTIVE
    await cluster.create_topic("t", partitions=1, overrides=OBJECT)
    await cluster.raise_leader_epochs()


async def test_a_new_active_controller_knows_how_long_a_broker_was_silent(world: World) -> None:
    first, second = await world.active("c1"), await world.controller("c2")
    await world.broker(first, "b1")
    await second.read()
    await second.heartbeat("b1", 1, cluster_id="", ready=None)
    # Both die at once: the second sits out the lease, and by then the session is over as well.
    await world.pass_ms(2_300, second)
    assert second.office.is_held
    assert (await world.registration("b1")).state == pb.FENCED


async def test_a_leaving_broker_gives_away_its_partitions_and_writes_until_it_is_gone(world: World) -> None:
    controller = await world.active()
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await first.create_topic("shared", partitions=2, overrides=OBJECT)
    await first.create_topic("own", partitions=1, overrides={"durability": "wal"})
    await first.open_in_ring({("own", 0): Place(epoch=0, start=0, ring_id=b"r" * 16, ring_start=0)})
    await controller._cluster.reload()
    await controller.leave("b1", 1, cluster_id="", is_gone=False)
    assert (await world.registration("b1")).state == pb.DRAINING
    assert await world.leaders("shared") == [("b2", 1)] * 2
    assert await world.leaders("own") == [("b1", 0)]
    await first.raise_ceilings({("own", 0): 10})
    await controller.leave("b1", 1, cluster_id="", is_gone=True)
    assert await world.home.get(keys.broker("b1")) is None
    with pytest.raises(StaleEpoch):
        await first.raise_ceilings({("own", 0): 20})


async def test_a_controller_that_died_between_fencing_and_moving_leaves_nothing_undone(world: World) -> None:
    controller = await world.active()
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await first.create_topic("t", partitions=3, overrides=OBJECT)
    await world.home.txn((), (Put(keys.broker("b1"), values.encode(pb.BrokerRegistration(state=pb.FENCED))),))
    second = await world.active("c1")
    await second.decide()
    assert await world.leaders("t") == [("b2", 1)] * 3


async def test_a_lost_race_for_a_leader_is_decided_anew(world: World) -> None:
    controller = await world.active()
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await first.create_topic("t", partitions=2, overrides=OBJECT)
    await controller._cluster.reload()
    await first.raise_leader_epochs()  # Of which the controller has not heard when it decides.
    await world.pass_ms(2_300, controller, "b2")
    assert await world.leaders("t") == [("b2", 2)] * 2


async def test_many_partitions_move_in_small_transactions(world: World) -> None:
    store = NarrowMetastore(world.home)
    controller = await world.active(store=store)
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await first.create_topic("t", partitions=500, overrides=OBJECT)
    await controller._cluster.reload()
    await world.pass_ms(2_300, controller, "b2")
    assert await world.leaders("t") == [("b2", 1)] * 500


@pytest.mark.parametrize("seed", range(5))
async def test_lost_requests_and_replies_end_in_the_same(world: World, seed: int) -> None:
    lossy = LossyMetastore(world.home, random.Random(seed))
    controller = await world.active(store=lossy)
    first = await world.broker(controller, "b1")
    await world.broker(controller, "b2")
    await world.broker(controller, "b3")
    await first.create_topic("t", partitions=300, overrides=OBJECT)
    await controller._cluster.reload()
    await world.pass_ms(4_000, controller, "b2", "b3")
    assert lossy.lost_count > 0
    assert (await world.registration("b1")).state == pb.FENCED
    assert {(await world.registration(name)).state for name in ("b2", "b3")} == {pb.ACTIVE}
    leaders = await world.leaders("t")
    assert {name for name, _ in leaders} == {"b2", "b3"}
    assert {epoch for _, epoch in leaders} == {1}


async def test_a_name_that_is_alive_is_not_given_to_another_directory(world: World) -> None:
    controller = await world.active()
    await world.broker(controller, "b1")
    with pytest.raises(Conflict, match="unique"):
        await controller.register("b1", pb.BrokerRegistration(wal_path="elsewhere"), cluster_id="")
    await controller.register("b1", pb.BrokerRegistration(wal_path="b1"), cluster_id="")
    await world.pass_ms(2_200, controller)
    await controller.register("b1", pb.BrokerRegistration(wal_path="elsewhere"), cluster_id="")


async def test_a_broker_of_another_cluster_is_refused(world: World) -> None:
    controller = await world.active()
    with pytest.raises(Invalid, match="cluster"):
        await controller.register("b1", pb.BrokerRegistration(), cluster_id="another")
    with pytest.raises(Invalid, match="cluster"):
        await controller.heartbeat("b1", 1, cluster_id="another", ready=None)


async def test_a_broker_whose_registration_is_gone_is_told_to_register_anew(world: World) -> None:
    controller = await world.active()
    assert await controller.heartbeat("b1", 1, cluster_id="", ready=None) is None
    waiting = await world.controller("c2")
    assert await waiting.heartbeat("b1", 1, cluster_id="", ready=None) is State.STARTING, "it cannot know"


async def test_only_the_active_controller_has_the_past_forgotten_and_keeps_the_newest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "REVISIONS_KEPT", 10)
    active, waiting = await world.active("c1"), await world.controller("c2")
    await waiting.office.look()
    await active.forget_past()
    assert world.compacted == [], "there is not much of it"
    for _ in range(20):
        await world.home.txn((), (Put("/x", b""),))
    await waiting.forget_past()
    await active.forget_past()
    assert world.compacted == [world.home.revision - 10]
