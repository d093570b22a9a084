"""A controller: what the machine decides is written here, under the office's guard, and what is true is read back.

Everything a controller knows is what the store says (its topics and its brokers, by watch) and what it has heard itself. So it
keeps nothing: one that dies between two transactions leaves partitions without a leader or a broker without a state, and
whoever is active next finds the same and goes on. A reply that was lost is treated likewise: what happened is seen in the
store, and decided on anew at the next tick.

Registrations, states and leaders are written one at a time: nobody races for numbers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from headrace.clock import Clock
from headrace.control import keys, plans, values, wal_plans
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, Registered
from headrace.control.controller import takeovers, transactions
from headrace.control.controller.machine import Machine, SetState, State
from headrace.control.controller.office import Office
from headrace.control.controller.registrations import Registrations
from headrace.control.metastore import KeyValue, Metastore, Put, RangeResult, Txn, TxnResult, only, unchanged
from headrace.control.plans import Fence
from headrace.control.takeovers import Takeovers
from headrace.errors import Concurrent, Conflict, Invalid, NotReady, OutcomeUnknown, RevisionCompacted, Unavailable
from headrace.ids import BrokerEpoch, BrokerId
from headrace.telemetry.logging import get_logger

ATTEMPTS_MAX: Final = 16
COMPACT_S: Final = 300.0
REVISIONS_KEPT: Final = 10_000
"""Of a store's past: a watcher that was away for a while finds its place again."""
MOVES_LOOK_MS: Final = 1_000
"""Between two looks at all partitions while no broker changes."""
_AGAIN_S: Final = 0.2

log = get_logger(__name__)

Probe = Callable[[pb.BrokerRegistration], Awaitable[bool]]
"""Whether nobody listens where this broker did: its process is gone."""


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """A registration: who the broker is, and what its transactions compare."""

    registered: Registered
    fence: Fence


class Controller:
    """`open` it, then `run` it until it is cancelled, then `stop` it. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        office: Office,
        *,
        clock: Clock,
        probe: Probe,
        compact: Callable[[int], Awaitable[None]] | None = None,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """`beside` runs as long as this does, and what breaks it breaks all."""
        self._beside = beside
        self._cluster = cluster
        self._store: Metastore = cluster.store
        self._machine = machine
        self._clock = clock
        self._probe = probe
        self._compact = compact
        self._takeovers = Takeovers(cluster.store)
        self._brokers = Registrations(cluster.store, on_change=self._note_broker, on_removed=self._drop_broker)
        self._addresses: dict[str, tuple[int, pb.BrokerRegistration]] = {}
        """Of brokers that are ready, with the epoch they said it under."""
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._looked_ms: int | None = None
        self._active_since_ms: int | None = None
        self.office = office

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    async def run(self) -> None:
        """Raises the fault of a store that has failed."""
        await self.read()
        works: tuple[Callable[[], Awaitable[None]], ...] = (
            self.office.run,
            self._pulse_always,
            partial(_insist, self._cluster.follow),
            partial(_insist, self._brokers.follow),
            partial(_insist, self._takeovers.follow),
            self._decide_always,
            self._probe_always,
            self._compact_always,
            *self._beside,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in works:
                    tasks.create_task(_awaited(work))
        except BaseExceptionGroup as group:
            # One is enough to say what is broken; the others have ended because of it.
            raise group.exceptions[0] from None

    async def read(self) -> None:
        """Know what the store knows of brokers. Topics were read when the cluster was loaded."""
        await self._brokers.load()
        await self._takeovers.load()

    async def stop(self) -> None:
        await self.office.leave()

    # -- what brokers ask ------------------------------------------------------------------------------------------

    async def register(self, broker_id: str, registration: pb.BrokerRegistration, *, cluster_id: str) -> Entered:
        """The next incarnation of this broker. Raises `NotReady` when not active, `Conflict` when another has its name."""
        self.check_cluster(cluster_id)
        async with self._writing:
            self._check_name(broker_id, registration)
            for _ in range(ATTEMPTS_MAX):
                guard = self.office.guard()
                taken = transactions.register(
                    broker_id,
                    registration,
                    identity=await self._store.get(keys.broker_identity(broker_id)),
                    counter=await self._store.get(keys.NEXT_BROKER_NUMBER),
                    guard=guard,
                    now_ms=self._clock.now_ms(),
                )
                result = await self._commit(taken.txn)
                if result is not None and result.is_success:
                    log.info("broker registered", broker=broker_id, epoch=taken.broker_epoch)
                    self._machine.heard(broker_id, taken.broker_epoch, now_ms=self._clock.monotonic_ms())
                    epoch = BrokerEpoch(taken.broker_epoch)
                    return Entered(
                        registered=Registered(numeric_id=BrokerId(taken.numeric_id), broker_epoch=epoch),
                        fence=Fence(broker_id, epoch, result.revision),
                    )
        raise Concurrent(f"registration of {broker_id!r} failed {ATTEMPTS_MAX} times")

    async def heartbeat(
        self, broker_id: str, epoch: int, *, cluster_id: str, ready: pb.BrokerRegistration | None
    ) -> State | None:
        """The state of this incarnation; None once it is fenced."""
        self.check_cluster(cluster_id)
        if ready is not None:
            self._addresses[broker_id] = (epoch, ready)
        is_current = self._hear(broker_id, epoch, is_ready=ready is not None)
        if is_current is None and self.office.is_held:
            await self._brokers.read(broker_id)
            is_current = self._hear(broker_id, epoch, is_ready=ready is not None) or False
        state = self._brokers.state_of(broker_id, epoch)
        if ready is not None and state == State.STARTING:
            self._wake.set()
        return state if is_current is not False else None

    async def leave(self, broker_id: str, epoch: int, *, cluster_id: str, is_gone: bool) -> int:
        """Moves away the next of what others can lead; gives how many partitions are still to be moved and opened.

        To be asked again until there are none. Once the broker is gone, so is its registration.
        """
        self.check_cluster(cluster_id)
        self.office.guard()
        if is_gone:
            async with self._writing:
                await self._remove(broker_id, epoch)
            return 0
        self._machine.leaves(broker_id, epoch)
        self._looked_ms = None
        await self.decide()
        return self._machine.left_to_hand_over(broker_id, self._cluster.topics)

    # -- what operators ask ----------------------------------------------------------------------------------------

    async def adopt(self, owner: str, *, taker: str, ring_id: bytes, wal_path: str, cluster_id: str) -> int:
        """Have `taker` read the WAL of `owner`, which an operator has brought to it. Gives how many partitions are in it."""
        self.check_cluster(cluster_id)
        self.office.guard()
        async with self._writing:
            await self._read_for(owner)
            known = self._takeovers.known.get(owner)
            value = takeovers.by_hand(
                self._cluster.topics,
                self._brokers.all(),
                None if known is None else known.value,
                owner=owner,
                taker=taker,
                ring_id=ring_id,
                wal_path=wal_path,
            )
            if not await self._put_takeover(owner, value, is_new=True):
                raise Concurrent(f"something about broker {owner} changed meanwhile; look, and try again")
            places = (self._cluster.topics.partition(*each) for each in self._cluster.topics.led_by(owner))
            return sum(each.ring_id == ring_id for each in places)

    async def give_up_wal(self, owner: str, *, cluster_id: str) -> int:
        """What only the WAL of `owner` has is lost. Gives how many partitions go on without it."""
        self.check_cluster(cluster_id)
        self.office.guard()
        async with self._writing:
            await self._read_for(owner)
            known = self._takeovers.known.get(owner)
            count = takeovers.check_give_up(
                self._cluster.topics,
                self._brokers.all(),
                None if known is None else known.value,
                owner=owner,
                silent_ms=self._silent_ms(owner),
            )
            guards = (
                self.office.guard(),
                self._brokers.guard(owner),
                unchanged(keys.takeover(owner), 0 if known is None else known.revision),
            )
            for txn in wal_plans.give_up(self._cluster.topics, owner, guards=guards, limits=self._store.txn_limits):
                result = await self._commit(txn)
                if result is None or not result.is_success:
                    raise Concurrent(f"something about broker {owner} changed meanwhile; look, and try again")
            self._looked_ms = None
            log.error("a WAL was given up: what only it had is lost", broker=owner, partitions=count)
        await self.decide()
        return count

    async def _read_for(self, owner: str) -> None:
        """Know all that is decided on, as it is now."""
        await self._cluster.reload()
        await self._brokers.read(owner)
        await self._takeovers.read(owner)

    def _silent_ms(self, broker_id: str) -> int:
        """Since anybody can have answered it who was active, as far as this controller knows."""
        now_ms = self._clock.monotonic_ms()
        active_ms = 0 if self._active_since_ms is None else now_ms - self._active_since_ms
        silent_ms = self._machine.silent_ms(broker_id, now_ms=now_ms)
        return active_ms if silent_ms is None else min(active_ms, silent_ms)

    def _hear(self, broker_id: str, epoch: int, *, is_ready: bool) -> bool | None:
        return self._machine.heard(broker_id, epoch, now_ms=self._clock.monotonic_ms(), is_ready=is_ready)

    def check_cluster(self, cluster_id: str) -> None:
        if cluster_id and cluster_id != self.cluster_id:
            raise Invalid(f"this is a controller of cluster {self.cluster_id}, not of {cluster_id}")

    def _check_name(self, broker_id: str, registration: pb.BrokerRegistration) -> None:
        """A directory has one process, so the same directory is the same broker; another one must not take its name."""
        known = self._brokers.get(broker_id)
        if known is None or not self._machine.is_alive(broker_id, now_ms=self._clock.monotonic_ms()):
            return
        if (known.machine_id, known.wal_path) != (registration.machine_id, registration.wal_path):
            raise Conflict(
                f"broker {broker_id} is alive with its WAL at {known.wal_path or 'another place'}; broker.id must be unique"
            )

    # -- what is decided -------------------------------------------------------------------------------------------

    async def _decide_always(self) -> None:
        while True:
            try:
                await self.decide()
            except Unavailable as error:
                log.warning("what was decided could not be written", reason=str(error))
            self._wake.clear()
            try:
                async with asyncio.timeout(self._machine.timing.tick_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def decide(self) -> None:
        """Write what is to change now, if this controller is active."""
        if not self.office.is_held:
            self._looked_ms = self._active_since_ms = None
            return
        if self._active_since_ms is None:
            self._active_since_ms = self._clock.monotonic_ms()
        async with self._writing:
            for wanted in self._machine.tick(now_ms=self._clock.monotonic_ms()):
                self._looked_ms = None
                await self._set_state(wanted)
            now_ms = self._clock.monotonic_ms()
            if self._looked_ms is None or now_ms - self._looked_ms >= MOVES_LOOK_MS:
                self._looked_ms = now_ms
                await self._move_leaders()
                await self._take_over()

    async def _set_state(self, wanted: SetState) -> None:
        broker_id, path = wanted.broker_id, keys.broker_identity(wanted.broker_id)
        registration = await self._brokers.read(broker_id)
        identity = await self._store.get(path)
        if identity is None or values.decode(pb.BrokerIdentity, identity.value).broker_epoch != wanted.broker_epoch:
            return  # Another incarnation by now, of which the watch will tell.
        guard = self.office.guard()
        if wanted.state == State.FENCED:
            txn = transactions.fence(broker_id, identity=identity, registration=registration, guard=guard)
        elif registration is not None:
            said_under, addresses = self._addresses.get(broker_id, (0, None))
            known = addresses if said_under == wanted.broker_epoch else None
            txn = transactions.set_state(registration, wanted.state, addresses=known, guard=guard)
        else:
            return
        result = await self._commit(txn)
        if result is not None and result.is_success:
            log.info("broker changed", broker=broker_id, state=wanted.state.name, reason=wanted.reason)

    async def _move_leaders(self) -> None:
        moves = self._machine.moves(self._cluster.topics, now_ms=self._clock.monotonic_ms())
        if not moves:
            return
        guards = (self.office.guard(),)
        moved = 0
        for txn in plans.move_leaders(self._cluster.topics, moves, guards=guards, limits=self._store.txn_limits):
            result = await self._commit(txn)
            if result is None or not result.is_success:
                self._looked_ms = None
                break
            moved += len(txn.then_ops)
        log.info("leaders moved", partitions=moved, wanted=len(moves))

    async def _take_over(self) -> None:
        """Begin, pass on and end takeovers of WALs whose owners are gone."""
        known = {owner: each.value for owner, each in self._takeovers.known.items()}
        for owner, takeover, is_new in list(takeovers.wanted(self._cluster.topics, self._brokers.all(), known)):
            if not await self._put_takeover(owner, takeover, is_new=is_new):
                self._looked_ms = None

    async def _put_takeover(self, owner: str, takeover: pb.Takeover, *, is_new: bool) -> bool:
        former = self._takeovers.known.get(owner)
        compares = [unchanged(keys.takeover(owner), 0 if former is None else former.revision)]
        if is_new:
            # One that has registered meanwhile keeps its WAL.
            compares.append(self._brokers.guard(owner))
        txn = transactions.put_takeover(owner, takeover, compares=tuple(compares), guard=self.office.guard())
        result = await self._commit(txn)
        if result is None or not result.is_success:
            return False
        log.info("a WAL is taken over", owner=owner, taker=takeover.taker, done=takeover.is_done)
        return True

    async def _remove(self, broker_id: str, epoch: int) -> None:
        identity = await self._store.get(keys.broker_identity(broker_id))
        if identity is None or values.decode(pb.BrokerIdentity, identity.value).broker_epoch != epoch:
            return
        result = await self._commit(transactions.remove(broker_id, identity=identity, guard=self.office.guard()))
        if result is not None and result.is_success:
            log.info("broker left", broker=broker_id)
            self._brokers.forget(broker_id, result.revision)

    async def _commit(self, txn: Txn) -> TxnResult | None:
        """None where the reply was lost. What was written, or stood in the way, is known when this returns."""
        try:
            result = await self._store.txn(txn.compares, txn.then_ops, txn.else_ops)
        except OutcomeUnknown as error:
            log.warning("a reply of the metastore was lost", reason=str(error))
            return None
        if result.is_success:
            for op in txn.then_ops:
                if isinstance(op, Put):
                    self._learn(KeyValue(op.key, op.value, 0, result.revision, 0))
            return result
        found = {item.key: item for read in result.results if isinstance(read, RangeResult) for item in read.items}
        holder = found.get(keys.ACTIVE_CONTROLLER)
        if holder is None or holder.mod_revision != txn.compares[0].operand:
            self.office.lost()
            raise NotReady("this controller is no longer active")
        for item in found.values():
            self._learn(item)
        return result

    # -- what is known ---------------------------------------------------------------------------------------------

    def _learn(self, item: KeyValue) -> None:
        match keys.parse(item.key):
            case keys.BrokerKey():
                self._brokers.learn(item)
            case keys.TakeoverKey():
                self._takeovers.learn(item)
            case keys.LeaderKey() | keys.TopicConfigKey():
                self._cluster.topics.apply(item.key, item.value, revision=item.mod_revision)
            case _:
                pass

    def _note_broker(self, broker_id: str, registration: pb.BrokerRegistration) -> None:
        self._machine.registered(
            broker_id, registration.broker_epoch, State(registration.state), now_ms=self._clock.monotonic_ms()
        )

    def _drop_broker(self, broker_id: str) -> None:
        self._addresses.pop(broker_id, None)
        self._machine.removed(broker_id)
        self._looked_ms = None

    async def _pulse_always(self) -> None:
        while True:
            self._machine.pulse(now_ms=self._clock.monotonic_ms())
            await asyncio.sleep(self._machine.timing.tick_ms / 1000)

    # -- beside ----------------------------------------------------------------------------------------------------

    async def _probe_always(self) -> None:
        """A broker that is quiet and whose port is closed is dead: there is no need to wait for its session."""
        while True:
            await asyncio.sleep(self._machine.timing.tick_ms / 1000)
            if self.office.is_held:
                await self.probe_silent()

    async def probe_silent(self) -> None:
        for broker_id, epoch in list(self._machine.silent(now_ms=self._clock.monotonic_ms())):
            registration = self._brokers.get(broker_id)
            if registration is not None and await self._probe(registration):
                self._machine.gone(broker_id, epoch)
                self._wake.set()

    async def _compact_always(self) -> None:
        while self._compact is not None:
            await asyncio.sleep(COMPACT_S)
            try:
                await self.forget_past()
            except (Unavailable, RevisionCompacted) as error:
                log.warning("the past of the metastore could not be forgotten", reason=str(error))

    async def forget_past(self) -> None:
        """An etcd keeps every revision until it is told otherwise. The active controller tells it."""
        if self._compact is None or not self.office.is_held:
            return
        revision = (await self._store.range(only(keys.ACTIVE_CONTROLLER))).revision - REVISIONS_KEPT
        if revision > 0:
            await self._compact(revision)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _insist(work: Callable[[], Awaitable[None]]) -> None:
    """A store that is away for a while is followed again where it was left."""
    while True:
        try:
            await work()
            return
        except Unavailable as error:
            log.warning("the metastore cannot be followed", reason=str(error))
            await asyncio.sleep(_AGAIN_S)
