"""Topics of a broker that is one of several: their partitions are spread over brokers, and change hands.

The metastore says who leads what. `follow` makes a topic here what it says there; a partition that this broker is to lead is
opened by `broker/leadership.py`, which hands it back to `take_lead`. Every time it is a new `PartitionLog`: what is still under
way for the one before, an upload or a read, finds that one removed and touches nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headrace.broker.ownership import is_internal, overrides_in_force
from headrace.broker.topic_config import policy_of
from headrace.broker.topics import Topic, Topics, log
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.placement import spread
from headrace.control.topics import TopicEntry
from headrace.control.values import DURABILITY
from headrace.errors import Invalid
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability, TopicPolicy
from headrace.log.store import LogStore

_OBJECT: Final = str(Durability.OBJECT.value)


class SharedTopics(Topics):
    def __init__(self, cluster: Cluster, store: LogStore, *, defaults: Mapping[str, str], own_name: str) -> None:
        super().__init__(cluster, store, defaults=defaults)
        self._own_name = own_name
        self.on_resigned: list[Callable[[PartitionLog], None]] = []
        """Told of a partition that this broker leads no longer."""
        self.on_changed: Callable[[str], None] = lambda name: None
        """Told when this broker has changed a topic: it may have partitions to open, or to give up."""
        self._awaiting: list[Callable[[], None]] = []

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
        if checked.get(DURABILITY, _OBJECT) != _OBJECT:
            raise Invalid(f"{DURABILITY}: in a cluster of several brokers it is {_OBJECT}; a WAL is on one disk")
        return {**checked, DURABILITY: _OBJECT}

    async def _create_checked(
        self, name: str, partitions: int, overrides: Mapping[str, str], leader: str | None
    ) -> Topic:
        """Spread over the brokers. Who leads a partition opens it when it hears of it."""
        leaders = [leader] * partitions if leader else self._place(partitions, stays_together=is_internal(name))
        entry = await self._cluster.create_topic(name, partitions=partitions, overrides=overrides, leaders=leaders)
        # Whoever follows the cluster may have heard of it first.
        known = self.find(name)
        topic = known if known is not None and known.id == entry.id else self._open(entry)
        self.on_changed(name)
        return topic

    async def _grow(self, topic: Topic, count: int) -> None:
        await self._cluster.add_partitions(
            topic.name, total=count, place=lambda missing: self._place(missing, stays_together=False)
        )
        self.on_changed(topic.name)

    def _place(self, count: int, *, stays_together: bool) -> list[str]:
        """Leaders of so many new partitions. Those of a coordinator stay together, for it moves as a whole."""
        led_by = {name: 0 for name, each in self._cluster.members.items() if each.state == pb.ACTIVE}
        for topic in self._cluster.topics:
            for partition in topic.partitions:
                if partition.leader in led_by:
                    led_by[partition.leader] += 1
        return spread(1, led_by) * count if stays_together else spread(count, led_by)

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
        else:
            self._follow_config(topic, entry)
            self._follow_leaders(topic, entry)
        return [
            self._new_partition(entry, index, partition.policy)
            for index, partition in enumerate(topic.partitions)
            if partition.removed and entry.partitions[index].leader == self._own_name
        ]

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
