"""Topics as every door sees them: names and ids to live partitions, and the changes people make to them.

The metastore decides (through `Cluster`); this service keeps the live `PartitionLog`s in step with it. A change is made
in the metastore first and shows here after. One that demands more of records (`durability` from `wal` to `object`) holds
here first: what is shown meanwhile must be shown again after a crash.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar, Final

import structlog

from headrace.broker.ceilings import Ceilings
from headrace.broker.ownership import check_client_may, checked_overrides, is_internal, overrides_in_force
from headrace.broker.topic_config import checked_config, effective, policy_of
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Put
from headrace.control.topics import TopicEntry
from headrace.control.values import DURABILITY
from headrace.errors import (
    AgainstPolicy,
    Invalid,
    InvalidName,
    NotLeader,
    OffsetOutOfRange,
    PartitionNotFound,
    Rejected,
    TopicNotFound,
    Unavailable,
)
from headrace.ids import TopicId, TopicName
from headrace.limits import PARTITIONS_PER_TOPIC_MAX, TOPIC_NAME_LENGTH_MAX
from headrace.log.common_append import append_pointer as append_pointer
from headrace.log.partition import PartitionLog as PartitionLog
from headrace.log.partition_recovery import recovered
from headrace.log.policy import Durability, TopicPolicy
from headrace.log.store import LogStore

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
log = structlog.get_logger(__name__)


class Topic:
    """One topic and its live partitions. `revision` moves with every change, for whoever caches what it looks like."""

    __slots__ = (
        "changing",
        "created_ms",
        "id",
        "is_internal",
        "leaders",
        "name",
        "overrides",
        "partitions",
        "revision",
    )

    def __init__(self, entry: TopicEntry, partitions: list[PartitionLog]) -> None:
        self.id: TopicId = entry.id
        self.name: TopicName = entry.name
        self.overrides: Mapping[str, str] = dict(overrides_in_force(entry.name, entry.overrides))
        self.created_ms = entry.created_ms
        self.is_internal = is_internal(entry.name)
        self.partitions = partitions
        """All of them. One that is led elsewhere is there too; it takes nothing and gives nothing."""
        self.leaders = [each.leader for each in entry.partitions]
        """The name of each partition's leader; empty where there is none."""
        self.revision = 0
        self.changing = asyncio.Lock()
        """Held across a change of config or partitions: each begins with the rules that the one before has left."""


class Topics:
    is_shared: ClassVar[bool] = False
    """Whether other brokers lead some of the partitions."""

    def __init__(self, cluster: Cluster, store: LogStore, *, defaults: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._store = store
        self.defaults = dict(defaults)
        """Broker-wide values for topic config keys."""
        self.by_name: dict[str, Topic] = {}
        """For reading; `create` and `delete` change it."""
        self.open_to_clients: dict[str | bytes, Topic] = {}
        """By name and by id, those that a fast path may write to for any client. Not internal ones; nor compacted ones, whose batches may
        have to be looked into beside the loop first; nor those that a Wasm module changes; nor any while a partition of it is being
        opened, for which batches wait."""
        self._by_id: dict[bytes, Topic] = {}
        self._alike: dict[str, set[str]] = {}
        """Names that differ in nothing but `.` and `_`, by what they have in common."""
        self._creating: dict[str, asyncio.Future[Topic]] = {}
        self.ceilings = Ceilings(cluster, store)
        self.on_removed: list[Callable[[Topic], None]] = []
        """Told when a topic is deleted, after it is gone from here."""
        self.on_closed: list[Callable[[], None]] = []
        """Told when a topic is no longer open to clients, or a partition changes hands: whoever has noted it forgets it."""
        self.shape_revision = 0
        """Moves when a topic comes, goes or grows."""
        self.has_batches_waiting: Callable[[Topic], bool] = lambda topic: False
        """Whether batches wait for the topic's module, or one that it had: what a fast path wrote would overtake them."""

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def find_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def find_all(self, names: Iterable[str | bytes]) -> list[Topic | None]:
        """By name, or by id where that is what a client has."""
        by_name, by_id = self.by_name, self._by_id
        return [by_name.get(name) if isinstance(name, str) else by_id.get(name) for name in names]

    def alike(self, name: str) -> str | None:
        """Another topic whose name differs from `name` in nothing but `.` and `_`."""
        return min(self._alike.get(name.replace(".", "_"), set()) - {name}, default=None)

    def get(self, name: str) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            raise TopicNotFound(f"Topic '{name}' not found")
        return topic

    def partition(self, name: str, index: int) -> PartitionLog:
        topic = self.get(name)
        if not 0 <= index < len(topic.partitions):
            raise PartitionNotFound(f"topic '{name}' has no partition {index}")
        return topic.partitions[index]

    def led_partition(self, name: str, index: int) -> PartitionLog:
        """The same, where it is led here; `NotLeader` otherwise, for what is known of it here is old."""
        partition = self.partition(name, index)
        if partition.removed:
            leader = self.get(name).leaders[index]
            raise NotLeader(f"{name}-{index} is led by {leader or 'nobody'}", broker=leader)
        return partition

    def is_being_opened(self, topic: Topic, index: int) -> bool:
        """It will take records here, and does not yet."""
        return False

    def when_opened(self, tell: Callable[[], None]) -> None:
        """Told once, when a partition that was being opened takes records, or is not to be led here after all."""
        raise AssertionError("a broker alone opens everything before it serves")

    def forget_opened(self, tell: Callable[[], None]) -> None:
        """Whoever gave up waiting is not told."""

    def has_partition(self, name: str, index: int) -> bool:
        topic = self.find(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def all(self) -> list[Topic]:
        return [self.by_name[name] for name in sorted(self.by_name)]

    # -- changing ------------------------------------------------------------------------------------------------

    async def create(
        self, name: str, *, partitions: int, config: Mapping[str, str] | None = None, leader: str | None = None
    ) -> Topic:
        """Raises `AlreadyExists`, `InvalidName`, `Invalid`. Whoever names no leader leaves it to the cluster."""
        check_client_may("create", name)
        return await self._create(name, partitions, config or {}, leader)

    async def create_internal(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """A coordinator's topic, made by it or by an administrator; with what the coordinator needs of it."""
        assert is_internal(name)
        return await self._create(name, partitions, config or {})

    async def _create(self, name: str, partitions: int, config: Mapping[str, str], leader: str | None = None) -> Topic:
        check_name(name)
        overrides = self.check_config(name, config)
        check_partition_count(partitions)
        topic = await self._create_checked(name, partitions, overrides, leader)
        log.info("topic created", topic=name, partitions=partitions)
        return topic

    async def _create_checked(
        self, name: str, partitions: int, overrides: Mapping[str, str], leader: str | None
    ) -> Topic:
        entry = await self._cluster.create_topic(name, partitions=partitions, overrides=overrides)
        await self.ceilings.open((name, index) for index in range(partitions))
        topic = self._open(entry)
        self.ceilings.announce(topic.partitions)
        return topic

    async def ensure(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """The topic, created if need be; concurrent callers share one creation."""
        return await self._ensure(name, lambda: self.create(name, partitions=partitions, config=config))

    async def ensure_internal(self, name: str, *, partitions: int) -> Topic:
        """The same, for the coordinator that the topic belongs to."""
        return await self._ensure(name, lambda: self.create_internal(name, partitions=partitions))

    async def _ensure(self, name: str, create: Callable[[], Coroutine[Any, Any, Topic]]) -> Topic:
        if (topic := self.find(name)) is not None:
            return topic
        under_way = self._creating.get(name)
        if under_way is not None:
            return await asyncio.shield(under_way)
        created = self._creating[name] = asyncio.ensure_future(create())
        created.add_done_callback(lambda _: self._creating.pop(name, None))
        return await asyncio.shield(created)

    async def delete(self, name: str) -> None:
        topic = self.get(name)
        check_client_may("delete", name)
        await self._cluster.delete_topic(name)
        if self.by_name.get(name) is topic:
            self._forget(topic)
        log.info("topic deleted", topic=name)

    def _forget(self, topic: Topic) -> None:
        """It is deleted, in the metastore already."""
        del self.by_name[topic.name]
        self._close_to_clients(topic)
        del self._by_id[topic.id]
        self._forget_alike(topic.name)
        self.shape_revision += 1
        for partition in topic.partitions:
            self._store.remove(partition)
        for callback in self.on_removed:
            callback(topic)

    def _forget_alike(self, name: str) -> None:
        common = name.replace(".", "_")
        self._alike[common].discard(name)
        if not self._alike[common]:
            del self._alike[common]

    async def add_partitions(self, name: str, count: int) -> None:
        """Grow to `count` partitions in all; topics never shrink."""
        topic = self.get(name)
        check_client_may("grow", name)  # Which partition a group belongs to depends on their number.
        check_growth(topic, count)
        async with topic.changing:
            await self._grow(topic, count)
            topic.revision += 1
            self.shape_revision += 1

    async def _grow(self, topic: Topic, count: int) -> None:
        have = len(topic.partitions)
        entry = await self._cluster.add_partitions(topic.name, total=count)
        await self.ceilings.open((topic.name, index) for index in range(have, count))
        policy = policy_of(topic.overrides, self.defaults)
        # Counted again: somebody else may have asked for more, or fewer, meanwhile.
        topic.partitions += [
            self._open_partition(entry, index, policy) for index in range(len(topic.partitions), count)
        ]
        topic.leaders = [each.leader for each in entry.partitions]
        self.ceilings.announce(topic.partitions)

    async def alter_config(self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Replace the overrides by what `edit` makes of them; in force at once. It may be asked more than once."""
        # To its end, whatever becomes of the caller: half a change would leave rules here that the metastore does not have.
        changing = asyncio.ensure_future(self._alter_config(self.get(name), edit))
        await asyncio.shield(changing)

    async def _alter_config(self, topic: Topic, edit: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        def checked(overrides: Mapping[str, str]) -> Mapping[str, str]:
            return self.check_config(topic.name, edit(overrides))

        async with topic.changing:
            known = self._cluster.topics.get(topic.name).overrides
            try:
                await self._demand_more(topic, policy_of(checked(known), self.defaults))
                entry = await self._cluster.set_config(topic.name, checked)
                topic.overrides = dict(overrides_in_force(topic.name, entry.overrides))
                topic.revision += 1
            except (Rejected, Unavailable):
                self._apply_config(topic)
                raise
            self._apply_config(topic)

    def _apply_config(self, topic: Topic) -> None:
        policy = policy_of(topic.overrides, self.defaults)
        for partition in topic.partitions:
            partition.apply_policy(policy)
        self._list_if_open(topic, policy)

    def _list_if_open(self, topic: Topic, policy: TopicPolicy) -> None:
        is_gone = self.by_name.get(topic.name) is not topic
        is_transformed = bool(policy.wasm_module_id) or self.has_batches_waiting(topic)
        if topic.is_internal or policy.is_compacted or is_transformed or is_gone or self._is_waited_for(topic):
            self._close_to_clients(topic)
        else:
            self.open_to_clients[topic.name] = self.open_to_clients[topic.id] = topic

    def batches_landed(self, topic: Topic) -> None:
        """None of its batches waits for a module any more."""
        self._list_if_open(topic, policy_of(topic.overrides, self.defaults))

    def _is_waited_for(self, topic: Topic) -> bool:
        return any(self.is_being_opened(topic, index) for index in range(len(topic.partitions)))

    def _close_to_clients(self, topic: Topic) -> None:
        if self.open_to_clients.pop(topic.id, None) is None:
            return
        # Another topic may have the name by now.
        if self.open_to_clients.get(topic.name) is topic:
            del self.open_to_clients[topic.name]
        for tell in self.on_closed:
            tell()

    def check_config(self, name: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """`overrides` as the topic would keep them; raises `Invalid` for what it cannot."""
        return checked_overrides(name, checked_config(overrides))

    async def _demand_more(self, topic: Topic, policy: TopicPolicy) -> None:
        """From `wal` to `object`: fix what the WAL was enough for, on disk and in the metastore, before the switch is true.

        Appends from here on wait for object storage already. A metastore that fails leaves that so, for nobody knows what it
        has made of the switch.
        """
        if topic.partitions[0].policy.durability is not Durability.WAL or policy.durability is Durability.WAL:
            return
        for partition in topic.partitions:
            partition.apply_policy(policy)
        # A crash must not lose offsets below these ends: others would be given out there and shown too soon.
        await self._store.wal.drain()
        await self._cluster.raise_wal_ends({(topic.name, each.index): each.wal_end for each in topic.partitions})

    async def delete_records(self, name: str, index: int, before: int) -> int:
        """Drop everything below `before` (-1: all that is readable); gives the new log start."""
        partition = self.led_partition(name, index)
        check_client_may("delete records of", name)
        if not partition.policy.is_deleted_by_retention:
            raise AgainstPolicy(f"records of topic {name!r} are not deleted: its cleanup.policy has no 'delete'")
        target = partition.high_watermark if before == -1 else before
        if not 0 <= target <= partition.high_watermark:
            raise OffsetOutOfRange(f"offset {before} is above the high watermark {partition.high_watermark}")
        if target > partition.log_start:
            await self._cluster.raise_log_starts({(name, index): target})
            partition.advance_log_start(target)
        return partition.log_start

    # -- starting ------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Make the live partitions of every topic of the cluster; the log replays into them next.

        Their ceilings are not raised before `ceilings.begin`.
        """
        self.ceilings.is_held = True
        for entry in self._cluster.topics:
            self._open(entry)

    async def keep_readable(self, broker_name: str) -> None:
        """After recovery: show what consumers have seen while `wal` was this broker's default, if it is not any more."""
        path = keys.broker_durability(broker_name)
        known = await self._cluster.store.get(path)
        default = effective({}, self.defaults, DURABILITY)
        if known is not None and known.value == default.encode():
            return
        if known is not None and known.value == Durability.WAL.encode():
            topics = [each for each in self.by_name.values() if DURABILITY not in each.overrides]
            partitions = [partition for topic in topics for partition in topic.partitions]
            await self._cluster.raise_wal_ends({(each.topic_name, each.index): each.end_offset for each in partitions})
            for partition in partitions:
                partition.wal_end = partition.end_offset
                recovered(partition)
        await self._cluster.store.txn((), (Put(path, default.encode()),))

    def refresh_epochs(self) -> None:
        """The metastore has raised leader epochs in bulk; take them over before the first append."""
        for topic in self.by_name.values():
            entry = self._cluster.topics.get(topic.name)
            for partition in topic.partitions:
                partition.leader_epoch = entry.partitions[partition.index].leader_epoch

    def _open(self, entry: TopicEntry) -> Topic:
        policy = policy_of(overrides_in_force(entry.name, entry.overrides), self.defaults)
        topic = Topic(entry, [self._open_partition(entry, index, policy) for index in range(len(entry.partitions))])
        self.by_name[topic.name] = topic
        self._list_if_open(topic, policy)
        self._by_id[topic.id] = topic
        self._alike.setdefault(topic.name.replace(".", "_"), set()).add(topic.name)
        self.shape_revision += 1
        return topic

    def _open_partition(self, entry: TopicEntry, index: int, policy: TopicPolicy) -> PartitionLog:
        partition = self._new_partition(entry, index, policy)
        self._store.add(partition)
        return partition

    def _new_partition(self, entry: TopicEntry, index: int, policy: TopicPolicy) -> PartitionLog:
        known = entry.partitions[index]
        return PartitionLog(
            self._store,
            topic_id=entry.id,
            topic_name=entry.name,
            index=index,
            leader_epoch=known.leader_epoch,
            policy=policy,
            log_start=known.log_start,
            wal_end=known.wal_end,
            ceiling=known.ceiling,
        )


def check_name(name: str) -> None:
    """The engine's rule (C11): Kafka's characters, up to 255 of them, not `.` or `..`."""
    if not name or len(name) > TOPIC_NAME_LENGTH_MAX or name in (".", "..") or not _NAME.fullmatch(name):
        raise InvalidName(
            f"topic name {name[:64]!r}: 1 to {TOPIC_NAME_LENGTH_MAX} of letters, digits, '.', '_' and '-', not '.' or '..'"
        )


def check_growth(topic: Topic, count: int) -> None:
    """`Invalid`, in Kafka's words, unless `count` partitions are more than there are and no more than possible."""
    have = len(topic.partitions)
    if count <= have:
        raise Invalid(f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase.")
    check_partition_count(count)


def check_replication_factor(count: int) -> None:
    """-1 leaves it to the node."""
    if count not in (-1, 1):
        raise Invalid(f"Replication factor {count} needs as many brokers; there is one.")


def check_partition_count(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise Invalid(f"{partitions} partitions; 1 to {PARTITIONS_PER_TOPIC_MAX} are possible")
