"""Carries plans out: the one way a broker changes topics, epochs, ceilings and its own registration.

Decide, commit, then apply to the topics in memory, in that order. A transaction that lost a race teaches them
what it had missed and is decided anew, a bounded number of times; one that fails because a newer incarnation of
this broker has registered ends with `StaleEpoch`, and this process must stop.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from headrace.chance import SYSTEM_CHANCE, Chance, new_uuid
from headrace.clock import Clock
from headrace.control import keys, plans, values, wal_plans
from headrace.control import values_pb2 as pb
from headrace.control.metastore import (
    NO_LEASE,
    Compare,
    Delete,
    KeyValue,
    LeaseId,
    Metastore,
    Put,
    RangeResult,
    Read,
    Txn,
    TxnResult,
    WatchEvent,
    absent,
    chunks_of,
    only,
    read_all,
    unchanged,
)
from headrace.control.plans import Fence, PartitionName
from headrace.control.topics import ClusterTopics, TopicEntry
from headrace.errors import (
    Concurrent,
    Invalid,
    NotReady,
    OutcomeUnknown,
    RevisionCompacted,
    StaleEpoch,
    TimedOut,
    TopicNotFound,
)
from headrace.ids import BrokerEpoch, BrokerId, TopicId

ATTEMPTS_MAX: Final = 16
"""Races lost in a row before the caller hears of it."""

PRODUCER_IDS_PER_BLOCK: Final = 1000
"""Taken at once, so that an idempotent producer's start costs no transaction. A restart leaves a gap."""


_CATCH_UP_PAUSE_S: Final = 0.05
_CATCH_UP_LOOKS: Final = 200
"""Ten seconds."""


class Registered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who this broker is from now on."""

    numeric_id: BrokerId
    broker_epoch: BrokerEpoch


class Cluster:
    """Load it, register, then change things. Belongs to one event loop."""

    def __init__(self, store: Metastore, clock: Clock, *, cluster_id: str, chance: Chance = SYSTEM_CHANCE) -> None:
        self.store = store
        self._chance = chance
        self.cluster_id = cluster_id
        self.topics = ClusterTopics()
        self._clock = clock
        self.members: dict[str, pb.BrokerRegistration] = {}
        """The brokers that are registered, by name, as `follow_members` has heard of them."""
        self._revision = 0
        self._is_following = False
        self._fence: Fence | None = None

    @classmethod
    async def load(cls, store: Metastore, clock: Clock, *, chance: Chance = SYSTEM_CHANCE) -> "Cluster":
        """Read all topics; in an empty store, found a new cluster first."""
        cluster = cls(store, clock, cluster_id=await _cluster_id(store, clock, chance), chance=chance)
        await cluster.reload()
        return cluster

    @property
    def fence(self) -> Fence:
        if self._fence is None:
            raise NotReady("this broker has not registered")
        return self._fence

    async def register(
        self, broker_id: str, endpoint: pb.BrokerRegistration, *, lease: LeaseId = NO_LEASE
    ) -> Registered:
        """Take the next broker epoch, and a number at the first time; fences whoever held the one before."""
        for _ in range(ATTEMPTS_MAX):
            identity = await self.store.get(keys.broker_identity(broker_id))
            counter = await self.store.get(keys.NEXT_BROKER_NUMBER)
            taken = plans.register_broker(
                broker_id, endpoint, identity=identity, counter=counter, lease=lease, now_ms=self._clock.now_ms()
            )
            try:
                result = await self._run(taken.txn)
            except OutcomeUnknown:
                continue  # The epoch may be taken, by us: the one behind it then fences that.
            if result.is_success:
                self._fence = Fence(broker_id, BrokerEpoch(taken.broker_epoch), result.revision)
                return Registered(numeric_id=BrokerId(taken.numeric_id), broker_epoch=BrokerEpoch(taken.broker_epoch))
        raise Concurrent(f"registration of {broker_id!r} lost {ATTEMPTS_MAX} races")

    def enter(self, fence: Fence) -> None:
        """Be the incarnation that a controller has registered."""
        self._fence = fence

    async def unregister(self) -> None:
        """Say that this broker is no longer live; its number and epoch stay. A newer incarnation is left alone."""
        fence = self.fence
        await self.store.txn((fence.compare(),), (Delete(only(keys.broker(fence.broker_id))),))
        self._fence = None

    async def brokers(self) -> dict[str, pb.BrokerRegistration]:
        """The live brokers."""
        await self.load_members()
        return dict(self.members)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        overrides: Mapping[str, str],
        leaders: Sequence[str] | None = None,
    ) -> TopicEntry:
        """Raises `AlreadyExists`, `Invalid`. Without `leaders`, this broker leads every partition."""
        topic_id = TopicId(new_uuid(self._chance).bytes)
        placed = [self.fence.broker_id] * partitions if leaders is None else list(leaders)
        guards = await self._module_guards(overrides.get(values.WASM_MODULE_ID, ""))
        await self._change(
            lambda: plans.create_topic(
                self.topics,
                name,
                topic_id,
                leaders=placed,
                overrides=overrides,
                created_ms=self._clock.now_ms(),
                limits=self.store.txn_limits,
                guards=guards,
            )
        )
        return self.topics.get(name)

    async def delete_topic(self, name: str) -> None:
        deleted_ms = self._clock.now_ms()
        await self._change_topic(name, lambda: [plans.delete_topic(self.topics, name, deleted_ms=deleted_ms)])

    async def add_partitions(
        self, name: str, *, total: int, place: Callable[[int], list[str]] | None = None
    ) -> TopicEntry:
        """Grow the topic to `total` partitions. `place` names the leaders of so many; without it, this broker leads them."""

        def plan() -> list[Txn]:
            missing = total - len(self.topics.get(name).partitions)
            leaders = [self.fence.broker_id] * missing if place is None else place(missing)
            return plans.add_partitions(self.topics, name, leaders=leaders, limits=self.store.txn_limits)

        await self._change_topic(name, plan)
        return self.topics.get(name)

    async def set_config(self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]]) -> TopicEntry:
        """Replace the overrides by what `edit` makes of them; it is asked anew when somebody else was faster."""
        known = self.topics.get(name).overrides
        module_id = edit(known).get(values.WASM_MODULE_ID, "")
        guards = await self._module_guards("" if module_id == known.get(values.WASM_MODULE_ID) else module_id)

        def plan() -> list[Txn]:
            overrides = edit(self.topics.get(name).overrides)
            if overrides.get(values.WASM_MODULE_ID, "") != module_id:
                raise Concurrent(f"the Wasm module of topic {name!r} is being changed by another")
            return [plans.set_config(self.topics, name, overrides, guards=guards)]

        await self._change_topic(name, plan)
        return self.topics.get(name)

    async def _module_guards(self, module_id: str) -> tuple[Compare, ...]:
        """What must hold when a topic is given this module: that it is there, and stays."""
        if not module_id:
            return ()
        item = await self.store.get(keys.wasm_module(module_id))
        if item is None:
            raise Invalid(f"{values.WASM_MODULE_ID}: no Wasm module {module_id!r}")
        if values.decode(pb.WasmModule, item.value).is_leaving:
            raise Invalid(f"{values.WASM_MODULE_ID}: module {module_id!r} is being removed")
        return (unchanged(item.key, item.mod_revision),)

    async def caught_up(self, revision: int) -> None:
        """Returns once `topics` shows all that was written up to `revision`. Who follows nobody wrote it all himself."""
        for _ in range(_CATCH_UP_LOOKS):
            if not self._is_following or self._revision >= revision:
                return
            await asyncio.sleep(_CATCH_UP_PAUSE_S)
        raise TimedOut(f"changes up to revision {revision} have not been heard of")

    async def raise_leader_epochs(self, starts: Mapping[PartitionName, int] | None = None) -> None:
        """The next epoch for all partitions this broker leads; durable before it returns, so before any append."""
        await self._change(
            lambda: plans.raise_leader_epochs(
                self.topics, self.fence, starts=starts or {}, limits=self.store.txn_limits
            )
        )

    async def open_partitions(self, starts: Mapping[PartitionName, int]) -> None:
        """Where the epochs that this broker was given begin. Raises `NotLeader` when one has been given to another since."""
        await self._change_partitions(starts, plans.open_partitions)

    async def open_in_ring(self, opened: Mapping[PartitionName, wal_plans.Place]) -> None:
        """The same for partitions of `wal` topics, with the ring that has their records. Raises `NotLeader`."""
        await self._change(
            lambda: wal_plans.open_in_ring(self.topics, self.fence, opened, limits=self.store.txn_limits)
        )

    async def leave_ring(self, epochs: Mapping[PartitionName, int]) -> None:
        """Object storage has everything of these partitions, and this broker appends no more. Raises `NotLeader`."""
        await self._change(lambda: wal_plans.leave_ring(self.topics, self.fence, epochs, limits=self.store.txn_limits))

    async def take_over(
        self, taken: Mapping[PartitionName, wal_plans.Place], *, owner: str, former_ring: bytes, guard: Compare
    ) -> None:
        """Lead what this broker has copied from the ring of `owner`. Raises `Concurrent` once another does that."""
        await self._change(
            lambda: wal_plans.take_over(
                self.topics,
                self.fence,
                taken,
                owner=owner,
                former_ring=former_ring,
                guard=guard,
                limits=self.store.txn_limits,
            )
        )

    async def raise_ceilings(self, ceilings: Mapping[PartitionName, int]) -> None:
        """Raises `NotLeader`, `TopicNotFound`; also when the topic was deleted and created again meanwhile."""
        await self._change_partitions(ceilings, plans.raise_ceilings)

    async def raise_log_starts(self, log_starts: Mapping[PartitionName, int]) -> None:
        """As `raise_ceilings`. A log start never moves back."""
        await self._change_partitions(log_starts, plans.raise_log_starts)

    async def raise_wal_ends(self, wal_ends: Mapping[PartitionName, int]) -> None:
        """As `raise_ceilings`. What consumers may have seen is shown again after every start."""
        await self._change_partitions(wal_ends, plans.raise_wal_ends)

    async def take_producer_ids(self) -> range:
        """A block of producer ids that nobody else gets."""
        return await take_numbers(self.store, keys.NEXT_PRODUCER_ID, PRODUCER_IDS_PER_BLOCK)

    async def follow(self, tell: Callable[[Sequence[str]], None] = lambda names: None) -> None:
        """Apply every change of the store until it closes; `tell` hears which topics it was about, each once, in the order of the changes.

        Shows what other nodes write, and what was written for a caller that was cancelled before it could apply it.
        """
        self._is_following = True
        while True:
            try:
                changing = self.store.watch(
                    keys.TOPICS, from_revision=self._revision + 1, without=keys.SEGMENTS_IN_PATH
                )
                async for changes in changing:
                    for event in changes.events:
                        self.topics.apply(event.key, event.value, revision=event.revision)
                    self._revision = changes.revision
                    if touched := dict.fromkeys(keys.topic_in(event.key) for event in changes.events):
                        tell(list(touched))
                return
            except RevisionCompacted:
                known = [topic.name for topic in self.topics]
                await self.reload()
                tell(list(dict.fromkeys((*known, *(topic.name for topic in self.topics)))))

    async def load_members(self) -> int:
        """Who is registered now; gives the revision of that."""
        found = await read_all(self.store, keys.BROKERS)
        self.members = {name: registration for name, registration in map(_registration, found.items) if name}
        return found.revision

    async def follow_members(self, tell: Callable[[], None] = lambda: None) -> None:
        """Keep `members` as the store has them, until it closes."""
        revision = await self.load_members()
        while True:
            tell()
            try:
                async for changes in self.store.watch(keys.BROKERS, from_revision=revision + 1):
                    revision = changes.revision
                    for event in changes.events:
                        self._note_member(event)
                    if changes.events:
                        tell()
                return
            except RevisionCompacted:
                revision = await self.load_members()

    def _note_member(self, event: WatchEvent) -> None:
        key = keys.parse(event.key)
        if isinstance(key, keys.BrokerKey):
            if event.value is None:
                self.members.pop(key.broker_id, None)
            else:
                self.members[key.broker_id] = values.decode(pb.BrokerRegistration, event.value)

    async def reload(self) -> None:
        """Know every topic as it is now."""
        found = await read_all(self.store, keys.TOPICS)
        present = {item.key for item in found.items}
        for topic in list(self.topics):
            if keys.topic_config(topic.name) not in present:
                self.topics.apply(keys.topic_config(topic.name), None, revision=found.revision)
        self.topics.load(found.items)
        self._revision = found.revision

    async def _change_topic(self, name: str, plan: Callable[[], list[Txn]]) -> None:
        topic_id = self.topics.get(name).id

        def same_topic_plan() -> list[Txn]:
            self._check_same_topic(name, topic_id)
            return plan()

        await self._change(same_topic_plan)

    async def _change_partitions(self, offsets: Mapping[PartitionName, int], plan: Callable[..., list[Txn]]) -> None:
        topic_ids = {name: self.topics.get(name).id for name, _ in offsets}

        def same_topics_plan() -> list[Txn]:
            for name, topic_id in topic_ids.items():
                self._check_same_topic(name, topic_id)
            return plan(self.topics, self.fence, offsets, limits=self.store.txn_limits)

        await self._change(same_topics_plan)

    def _check_same_topic(self, name: str, topic_id: TopicId) -> None:
        if self.topics.get(name).id != topic_id:
            raise TopicNotFound(f"topic {name!r} was deleted; another has its name now")

    async def _change(self, plan: Callable[[], list[Txn]]) -> None:
        """Commit what `plan` decides, deciding anew with what each lost race has taught."""
        for _ in range(ATTEMPTS_MAX):
            for txn in plan():
                result = await self._run_surely(txn)
                if result is not None and not result.is_success:
                    await self._learn(txn, result)
                    break
            else:
                return
        raise Concurrent(f"a metadata change lost {ATTEMPTS_MAX} races")

    async def _run(self, txn: Txn) -> TxnResult:
        result = await self.store.txn(txn.compares, txn.then_ops, txn.else_ops)
        if result.is_success:
            for op in txn.then_ops:
                if isinstance(op, Put):
                    self.topics.apply(op.key, op.value, revision=result.revision)
                elif isinstance(op, Delete):
                    self.topics.apply_deletion(op.keys, revision=result.revision)
        return result

    async def _run_surely(self, txn: Txn) -> TxnResult | None:
        """None where only the store's contents tell that it has happened."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._run(txn)
            except OutcomeUnknown:
                if await self._has_happened(txn):
                    return None
        raise OutcomeUnknown(f"{ATTEMPTS_MAX} replies to a metadata change were lost")

    async def _has_happened(self, txn: Txn) -> bool:
        """Whether the store holds what a transaction of unknown outcome writes. The topics in memory learn what it holds instead.

        The lost one may still be on its way. It compares what it was decided on, so it fails behind the one decided next.
        """
        written = [op for op in txn.then_ops if isinstance(op, Put)]
        emptied = [op.keys for op in txn.then_ops if isinstance(op, Delete)]
        wanted = [*(only(op.key) for op in written), *emptied, *(only(each.key) for each in txn.compares)]
        found: dict[str, KeyValue] = {}
        revision = 0
        for chunk in chunks_of(map(Read, wanted), self.store.txn_limits):
            result = await self.store.txn((), chunk)
            revision = result.revision
            found |= {item.key: item for read in result.results if isinstance(read, RangeResult) for item in read.items}
        self._check_fence(found)
        for keys_read in wanted:
            if not any(key in keys_read for key in found):
                self.topics.apply_deletion(keys_read, revision=revision)
        self.topics.load(found.values())
        is_written = all((item := found.get(op.key)) is not None and item.value == op.value for op in written)
        return is_written and not any(key in keys_read for keys_read in emptied for key in found)

    def _check_fence(self, found: Mapping[str, KeyValue]) -> None:
        if self._fence is not None:
            path = keys.broker_identity(self._fence.broker_id)
            if path in found and found[path].mod_revision != self._fence.revision:
                raise StaleEpoch(f"a newer {self._fence.broker_id!r} has registered; this one must stop")

    async def _learn(self, txn: Txn, result: TxnResult) -> None:
        compared = {item.key: item for read in result.results if isinstance(read, RangeResult) for item in read.items}
        self._check_fence(compared)
        # The configs first: a topic that is gone, or is another one by now, is the news that matters most.
        topics = {key.topic for compare in txn.compares if (key := _topic_key(compare.key)) is not None}
        for name in topics:
            config = await self.store.get(keys.topic_config(name))
            value, revision = (None, result.revision) if config is None else (config.value, config.mod_revision)
            self.topics.apply(keys.topic_config(name), value, revision=revision)
        self.topics.load(compared.values())


def _registration(item: KeyValue) -> tuple[str, pb.BrokerRegistration]:
    key = keys.parse(item.key)
    name = key.broker_id if isinstance(key, keys.BrokerKey) else ""
    return name, values.decode(pb.BrokerRegistration, item.value)


def _topic_key(path: str) -> keys.TopicConfigKey | keys.LeaderKey | None:
    key = keys.parse(path)
    return key if isinstance(key, keys.TopicConfigKey | keys.LeaderKey) else None


async def take_numbers(store: Metastore, path: str, count: int, *, first: int = 0) -> range:
    """The next `count` numbers of a counter, for the caller alone. The first ever given is `first`."""
    for _ in range(ATTEMPTS_MAX):
        item = await store.get(path)
        start = first if item is None else values.decode(pb.Counter, item.value).next
        counter = values.encode(pb.Counter(next=start + count))
        try:
            result = await store.txn(
                (unchanged(path, 0 if item is None else item.mod_revision),), (Put(path, counter),)
            )
        except OutcomeUnknown:
            continue  # They may be taken, and then nobody has them: numbers are never given twice, and may be missing.
        if result.is_success:
            return range(start, start + count)
    raise Concurrent(f"{path} lost {ATTEMPTS_MAX} races")


async def _cluster_id(store: Metastore, clock: Clock, chance: Chance) -> str:
    # Sixteen random bytes as 22 characters, the shape Kafka's tools expect of a cluster id.
    fresh = urlsafe_b64encode(new_uuid(chance).bytes).rstrip(b"=").decode()
    identity = pb.ClusterIdentity(cluster_id=fresh, created_ms=clock.now_ms())
    for _ in range(ATTEMPTS_MAX):
        with suppress(OutcomeUnknown):
            await store.txn((absent(keys.CLUSTER),), (Put(keys.CLUSTER, values.encode(identity)),))
        item = await store.get(keys.CLUSTER)
        if item is not None:
            return values.decode(pb.ClusterIdentity, item.value).cluster_id
    raise Concurrent(f"no cluster could be founded in {ATTEMPTS_MAX} attempts")
