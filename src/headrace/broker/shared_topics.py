"""Topics of a broker that is one of several: their partitions are spread over brokers, and change hands.

The metastore says who leads what. `follow` makes a topic here what it says there; a partition that this broker is to lead is
opened by `broker/leadership.py`, which hands it back to `take_lead`. Every time it is a new `PartitionLog`: what is still under
way for the one before, an upload or a read, finds that one removed and touches nothing else.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

from headrace.broker.ownership import is_internal, overrides_in_force
from headrace.broker.topic_config import policy_of
from headrace.broker.topics import Topic, Topics, log
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.placement import spread
from headrace.control.topics import PartitionEntry, TopicEntry
from headrace.control.values import DURABILITY
from headrace.errors import AlreadyExists, Invalid, NotReady, StaleEpoch
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability, TopicPolicy
from headrace.log.store import LogStore

_OBJECT: Final = str(Durability.OBJECT.value)
_WAL: Final = str(Durability.WAL.value)
_AHEAD_S: Final = 120.0
"""Seconds of its present rate that a ceiling is ahead: half of it is left when the next is asked for, so that a partition of a `wal` topic
goes on for a minute without controllers."""
_HEARD_S: Final = 5.0
"""How long the news of a topic that another broker has made may take."""


class SharedTopics(Topics):
    is_shared: ClassVar[bool] = True

    def __init__(self, cluster: Cluster, store: LogStore, *, defaults: Mapping[str, str], own_name: str) -> None:
        super().__init__(cluster, store, defaults=defaults)
        self._own_name = own_name
        self.ceilings.ahead_s = _AHEAD_S
        self.on_resigned: list[Callable[[PartitionLog], None]] = []
        """Told of a partition that this broker leads no longer."""
        self.on_led: list[Callable[[PartitionLog], None]] = []
        """Told of a partition that takes records here from now on."""
        self.on_changed: Callable[[str], None] = lambda name: None
        """Told when this broker has changed a topic: it may have partitions to open, or to give up."""
        self.on_members_changed: list[Callable[[], None]] = []
        """Told when a broker has come, gone, or changed."""
        self._awaiting: list[Callable[[], None]] = []
        self.taken_ring = b""
        """A ring that this broker had, and that is being taken over: whoever does that leads what is in it next."""
        self.being_taken: dict[tuple[bytes, int], None] = {}
        """Partitions whose records are being copied from another WAL into this broker's: whoever does that opens them."""
        self.reclaimed: list[PartitionLog] = []
        """Of `wal` topics: led here, and their newest records are in this broker's own ring."""

    def is_being_opened(self, topic: Topic, index: int) -> bool:
        return topic.partitions[index].removed and topic.leaders[index] == self._own_name

    def when_opened(self, tell: Callable[[], None]) -> None:
        self._awaiting.append(tell)

    def forget_opened(self, tell: Callable[[], None]) -> None:
        if tell in self._awaiting:
            self._awaiting.remove(tell)

    def _tell_awaiting(self) -> None:
        awaiting, self._awaiting = self._awaiting, []
        for tell in awaiting:
            tell()

    # -- changing ------------------------------------------------------------------------------------------------

    def check_config(self, name: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
        # Said outright: who moves partitions goes by what the metastore has, and knows nobody's defaults.
        checked = super().check_config(name, overrides)
        known = self._cluster.topics.find(name)
        kept = _OBJECT if known is None else known.overrides.get(DURABILITY, _OBJECT)
        wanted = checked.get(DURABILITY, kept)
        if wanted not in (_OBJECT, _WAL):
            raise Invalid(f"{DURABILITY}: {_OBJECT} or {_WAL}, not {wanted}")
        if known is not None and wanted != kept:
            raise Invalid(
                f"{DURABILITY}: in a cluster of several brokers it stays what it was when the topic was created, {kept}"
            )
        if wanted == _WAL and is_internal(name):
            raise Invalid(f"{DURABILITY}: in a cluster of several brokers '{name}' is on {_OBJECT}")
        return {**checked, DURABILITY: wanted}

    async def _ensure(self, name: str, create: Callable[[], Coroutine[Any, Any, Topic]]) -> Topic:
        """Another broker may be quicker. Then the topic is there once this one has heard of it."""
        try:
            return await super()._ensure(name, create)
        except AlreadyExists:
            return await self._hear_of(name)

    async def _hear_of(self, name: str) -> Topic:
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S):
                while (topic := self.find(name)) is None:
                    changed = asyncio.Event()
                    self.when_opened(changed.set)
                    await changed.wait()
                return topic
        raise NotReady(f"topic {name!r} has just been made by another broker")

    async def _create_checked(
        self, name: str, partitions: int, overrides: Mapping[str, str], leader: str | None
    ) -> Topic:
        """Spread over the brokers. Who leads a partition opens it when it hears of it."""
        leaders = [leader] * partitions if leader else self._place(partitions)
        entry = await self._cluster.create_topic(name, partitions=partitions, overrides=overrides, leaders=leaders)
        # Whoever follows the cluster may have heard of it first.
        known = self.find(name)
        topic = known if known is not None and known.id == entry.id else self._open(entry)
        self.on_changed(name)
        return topic

    async def _grow(self, topic: Topic, count: int) -> None:
        await self._cluster.add_partitions(topic.name, total=count, place=self._place)
        self.on_changed(topic.name)

    def _place(self, count: int) -> list[str]:
        """Leaders of so many new partitions."""
        led_by = {name: 0 for name, each in self._cluster.members.items() if each.state == pb.ACTIVE}
        for topic in self._cluster.topics:
            for partition in topic.partitions:
                if partition.leader in led_by:
                    led_by[partition.leader] += 1
        return spread(count, led_by)

    # -- following -----------------------------------------------------------------------------------------------

    def follow(self, name: str) -> list[PartitionLog]:
        """Make the topic what the metastore says of it. Gives the partitions that this broker is to open and has not yet.

        Nobody knows of those before `take_lead`.
        """
        entry, topic = self._cluster.topics.find(name), self.by_name.get(name)
        if topic is not None and (entry is None or entry.id != topic.id):
            self._forget(topic)
            topic = None
        if entry is None:
            return []
        if topic is None:
            topic = self._open(entry)
            self._tell_awaiting()
        else:
            self._follow_config(topic, entry)
            self._follow_leaders(topic, entry)
        return [
            self._new_partition(entry, index, partition.policy)
            for index, partition in enumerate(topic.partitions)
            if partition.removed
            and (entry.id, index) not in self.being_taken
            and self._is_to_be_opened(entry.partitions[index])
        ]

    def _is_to_be_opened(self, known: PartitionEntry) -> bool:
        is_taken = bool(known.ring_id) and known.ring_id == self.taken_ring
        return known.leader == self._own_name and not is_taken

    def is_tail_lost(self, partition: PartitionLog) -> bool:
        """Whether a partition that is about to be opened had records in a WAL which this broker does not have.

        Raises `StaleEpoch` where it is this broker's present one: a start reads that, and nothing else does.
        """
        ring_id = self._cluster.topics.partition(partition.topic_name, partition.index).ring_id
        if ring_id == self._store.ring_id:
            raise StaleEpoch(f"{partition.topic_name}-{partition.index} is in this WAL, and was not read from it")
        return bool(ring_id)

    def make(self, topic: str, index: int) -> PartitionLog:
        """A partition that nobody knows before `take_lead`."""
        entry = self._cluster.topics.get(topic)
        return self._new_partition(entry, index, policy_of(overrides_in_force(topic, entry.overrides), self.defaults))

    # -- its own WAL ---------------------------------------------------------------------------------------------

    def reclaim(self) -> None:
        """At a start, before the log recovers: it reads these from the ring, from where they began there."""
        since: dict[tuple[bytes, int], int] = {}
        for name, index in self._cluster.topics.led_by(self._own_name):
            entry = self._cluster.topics.get(name)
            if entry.partitions[index].ring_id == self._store.ring_id:
                partition = self.make(name, index)
                self._store.add(partition)
                self.reclaimed.append(partition)
                since[(entry.id, index)] = entry.partitions[index].ring_start
        self._store.recovery.since = since

    def refresh_epochs(self) -> None:
        for partition in self.reclaimed:
            partition.leader_epoch = self._cluster.topics.partition(partition.topic_name, partition.index).leader_epoch

    def lead_reclaimed(self) -> None:
        """They take records from here on."""
        for partition in self.reclaimed:
            if not self.take_lead(partition):
                self._store.remove(partition)
        if self.reclaimed:
            log.info("partitions read from this broker's own WAL", count=len(self.reclaimed))
        self.reclaimed = []

    def _follow_config(self, topic: Topic, entry: TopicEntry) -> None:
        overrides = dict(overrides_in_force(entry.name, entry.overrides))
        if overrides != topic.overrides:
            topic.overrides = overrides
            topic.revision += 1
            self._apply_config(topic)

    def _follow_leaders(self, topic: Topic, entry: TopicEntry) -> None:
        policy = policy_of(topic.overrides, self.defaults)
        added = range(len(topic.partitions), len(entry.partitions))
        if added:
            topic.partitions += [self._open_partition(entry, index, policy) for index in added]
            self.shape_revision += 1
        moved = [
            partition
            for partition, known in zip(topic.partitions, entry.partitions, strict=True)
            if partition.leader_epoch != known.leader_epoch
        ]
        for partition in moved:
            if not partition.removed:
                self._resign(partition)
            topic.partitions[partition.index] = self._open_partition(entry, partition.index, policy)
        if moved or added:
            topic.leaders = [each.leader for each in entry.partitions]
            topic.revision += 1
            self._list_if_open(topic, policy)
            self._tell_awaiting()

    def members_changed(self) -> None:
        """Whether a leader can be reached is part of how a topic looks."""
        for topic in self.by_name.values():
            topic.revision += 1
        for tell in self.on_members_changed:
            tell()

    def _resign(self, partition: PartitionLog) -> None:
        self._store.remove(partition)
        for tell in self.on_closed:
            tell()
        for tell_of in self.on_resigned:
            tell_of(partition)
        log.info("partition is led elsewhere now", topic=partition.topic_name, partition=partition.index)

    def take_lead(self, partition: PartitionLog) -> bool:
        """It takes records from here on. False when it was given to another while it was being opened."""
        topic = self.find_by_id(partition.topic_id)
        entry = self._cluster.topics.find_by_id(partition.topic_id)
        if topic is None or entry is None:
            return False
        known = entry.partitions[partition.index]
        if known.leader != self._own_name or known.leader_epoch != partition.leader_epoch:
            return False
        policy = policy_of(topic.overrides, self.defaults)
        partition.apply_policy(policy)
        self._store.add(partition)
        topic.partitions[partition.index] = partition
        topic.revision += 1
        self._list_if_open(topic, policy)
        for tell in self.on_closed:
            tell()
        self._tell_awaiting()
        for tell_of in self.on_led:
            tell_of(partition)
        return True

    def _open_partition(self, entry: TopicEntry, index: int, policy: TopicPolicy) -> PartitionLog:
        """Led elsewhere, or here and not opened yet."""
        partition = self._new_partition(entry, index, policy)
        partition.remove()
        return partition

    def _new_partition(self, entry: TopicEntry, index: int, policy: TopicPolicy) -> PartitionLog:
        partition = super()._new_partition(entry, index, policy)
        # Nothing on this disk knows them: whoever led it wrote each down before its first record.
        partition.epoch_starts = [EpochStart(epoch, start) for epoch, start in entry.partitions[index].epoch_starts]
        return partition
