"""A controller: what the machine decides is written here, under the office's guard, and what is true is read back.

Everything a controller knows is what the store says (its topics and its brokers, by watch) and what it has heard itself. So it
keeps nothing: one that dies between two transactions leaves partitions without a leader or a broker without a state, and
whoever is active next finds the same and goes on. A reply that was lost is treated likewise: what happened is seen in the
store, and decided on anew at the next tick.

Registrations, states and leaders are written one at a time: nobody races for numbers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from headrace.clock import Clock
from headrace.control import keys, plans, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, Registered
from headrace.control.controller import transactions
from headrace.control.controller.machine import Machine, SetState, State
from headrace.control.controller.office import Office
from headrace.control.metastore import KeyValue, Metastore, Put, RangeResult, Read, Txn, TxnResult, only, read_all
from headrace.control.plans import Fence
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
    ) -> None:
        self._cluster = cluster
        self._store: Metastore = cluster.store
        self._machine = machine
        self._clock = clock
        self._probe = probe
        self._compact = compact
        self._brokers: dict[str, KeyValue] = {}
        """Registrations, newest known."""
        self._addresses: dict[str, tuple[int, pb.BrokerRegistration]] = {}
        """Of brokers that are ready, with the epoch they said it under."""
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._looked_ms: int | None = None
        self._broker_revision = 0
        self.office = office

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    async def run(self) -> None:
        """Raises the fault of a store that has failed."""
        await self.read()
        works = (
            self.office.run,
            self._pulse_always,
            partial(_insist, self._cluster.follow),
            partial(_insist, self._follow_brokers),
            self._decide_always,
            self._probe_always,
            self._compact_always,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in works:
                    tasks.create_task(work())
        except BaseExceptionGroup as group:
            # One is enough to say what is broken; the others have ended because of it.
            raise group.exceptions[0] from None

    async def read(self) -> None:
        """Know what the store knows of brokers. Topics were read when the cluster was loaded."""
        await self._read_brokers()

    async def stop(self) -> None:
        await self.office.leave()

    # -- what brokers ask ------------------------------------------------------------------------------------------

    async def register(self, broker_id: str, registration: pb.BrokerRegistration, *, cluster_id: str) -> Entered:
        """The next incarnation of this broker. Raises `NotReady` when not active, `Conflict` when another has its name."""
        self._check_cluster(cluster_id)
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
        self._check_cluster(cluster_id)
        if ready is not None:
            self._addresses[broker_id] = (epoch, ready)
        is_current = self._hear(broker_id, epoch, is_ready=ready is not None)
        if is_current is None and self.office.is_held:
            await self._read_broker(broker_id)
            is_current = self._hear(broker_id, epoch, is_ready=ready is not None) or False
        state = self._state_of(broker_id, epoch)
        if ready is not None and state == State.STARTING:
            self._wake.set()
        return state if is_current is not False else None

    async def leave(self, broker_id: str, epoch: int, *, cluster_id: str, is_gone: bool) -> int:
        """Moves away the next of what others can lead; gives how many partitions are still to be moved and opened.

        To be asked again until there are none. Once the broker is gone, so is its registration.
        """
        self._check_cluster(cluster_id)
        self.office.guard()
        if is_gone:
            async with self._writing:
                await self._remove(broker_id, epoch)
            return 0
        self._machine.leaves(broker_id, epoch)
        self._looked_ms = None
        await self.decide()
        return self._machine.left_to_hand_over(broker_id, self._cluster.topics)

    def _hear(self, broker_id: str, epoch: int, *, is_ready: bool) -> bool | None:
        return self._machine.heard(broker_id, epoch, now_ms=self._clock.monotonic_ms(), is_ready=is_ready)

    def _state_of(self, broker_id: str, epoch: int) -> State:
        """STARTING where only another incarnation is known yet."""
        item = self._brokers.get(broker_id)
        known = pb.BrokerRegistration() if item is None else values.decode(pb.BrokerRegistration, item.value)
        return State(known.state) if known.broker_epoch == epoch else State.STARTING

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id and cluster_id != self.cluster_id:
            raise Invalid(f"this is a controller of cluster {self.cluster_id}, not of {cluster_id}")

    def _check_name(self, broker_id: str, registration: pb.BrokerRegistration) -> None:
        """A directory has one process, so the same directory is the same broker; another one must not take its name."""
        item = self._brokers.get(broker_id)
        if item is None or not self._machine.is_alive(broker_id, now_ms=self._clock.monotonic_ms()):
            return
        known = values.decode(pb.BrokerRegistration, item.value)
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
            self._looked_ms = None
            return
        async with self._writing:
            for wanted in self._machine.tick(now_ms=self._clock.monotonic_ms()):
                self._looked_ms = None
                await self._set_state(wanted)
            now_ms = self._clock.monotonic_ms()
            if self._looked_ms is None or now_ms - self._looked_ms >= MOVES_LOOK_MS:
                self._looked_ms = now_ms
                await self._move_leaders()

    async def _set_state(self, wanted: SetState) -> None:
        broker_id, path = wanted.broker_id, keys.broker_identity(wanted.broker_id)
        registration = await self._read_broker(broker_id)
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

    async def _remove(self, broker_id: str, epoch: int) -> None:
        identity = await self._store.get(keys.broker_identity(broker_id))
        if identity is None or values.decode(pb.BrokerIdentity, identity.value).broker_epoch != epoch:
            return
        result = await self._commit(transactions.remove(broker_id, identity=identity, guard=self.office.guard()))
        if result is not None and result.is_success:
            log.info("broker left", broker=broker_id)
            self._forget(broker_id, result.revision)

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
            case keys.BrokerKey(broker_id=broker_id):
                known = self._brokers.get(broker_id)
                if known is None or item.mod_revision > known.mod_revision:
                    self._brokers[broker_id] = item
                    registration = values.decode(pb.BrokerRegistration, item.value)
                    self._machine.registered(
                        broker_id,
                        registration.broker_epoch,
                        State(registration.state),
                        now_ms=self._clock.monotonic_ms(),
                    )
            case keys.LeaderKey() | keys.TopicConfigKey():
                self._cluster.topics.apply(item.key, item.value, revision=item.mod_revision)
            case _:
                pass

    def _forget(self, broker_id: str, revision: int) -> None:
        known = self._brokers.get(broker_id)
        if known is not None and known.mod_revision <= revision:
            del self._brokers[broker_id]
            self._addresses.pop(broker_id, None)
            self._machine.removed(broker_id)
            self._looked_ms = None

    async def _read_broker(self, broker_id: str) -> KeyValue | None:
        result = await self._store.txn((), (Read(only(keys.broker(broker_id))),))
        (found,) = result.results
        assert isinstance(found, RangeResult)
        for item in found.items:
            self._learn(item)
            return item
        self._forget(broker_id, result.revision)
        return None

    async def _read_brokers(self) -> None:
        found = await read_all(self._store, keys.BROKERS)
        present = {item.key for item in found.items}
        for broker_id in [each for each in self._brokers if keys.broker(each) not in present]:
            self._forget(broker_id, found.revision)
        for item in found.items:
            self._learn(item)
        self._broker_revision = found.revision

    async def _follow_brokers(self) -> None:
        while True:
            try:
                watch = self._store.watch(keys.BROKERS, from_revision=self._broker_revision + 1)
                async for changes in watch:
                    for event in changes.events:
                        if event.value is not None:
                            self._learn(KeyValue(event.key, event.value, 0, event.revision, 0))
                        elif isinstance(key := keys.parse(event.key), keys.BrokerKey):
                            self._forget(key.broker_id, event.revision)
                    self._broker_revision = changes.revision
                return
            except RevisionCompacted:
                await self._read_brokers()

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
            item = self._brokers.get(broker_id)
            if item is not None and await self._probe(values.decode(pb.BrokerRegistration, item.value)):
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


async def _insist(work: Callable[[], Awaitable[None]]) -> None:
    """A store that is away for a while is followed again where it was left."""
    while True:
        try:
            await work()
            return
        except Unavailable as error:
            log.warning("the metastore cannot be followed", reason=str(error))
            await asyncio.sleep(_AGAIN_S)
