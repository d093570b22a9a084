"""The topics of the cluster as this node knows them: the metastore's keys turned into a picture in memory.

`apply` takes one key's new value with its revision, from a first read, from our own transactions or from a watch,
in any mixture: what is older than what is known changes nothing. Decides nothing and does no I/O; what may be
written is decided in `plans`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import KeyRange, KeyValue
from headrace.errors import PartitionNotFound, TopicNotFound
from headrace.ids import LeaderEpoch, Offset, Partition, TopicId, TopicName

NO_EPOCH: Final = LeaderEpoch(-1)
"""Of a partition whose leader key has not been seen; a created one begins at zero."""

LOST_RING: Final = b"lost"
"""In place of a ring's id: its records were given up, as far as object storage has not got them."""

_FIRST_OFFSET: Final = Offset(0)


@dataclass(slots=True)
class PartitionEntry:
    """One partition. The revisions are those of the keys, for the compares of the next transaction; 0: no key."""

    leader: str = ""
    leader_epoch: LeaderEpoch = NO_EPOCH
    replicas: tuple[str, ...] = ()
    isr: tuple[str, ...] = ()
    epoch_starts: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    ring_id: bytes = b""
    """The WAL that has what object storage has not, for a `wal` topic in a cluster; empty, or `LOST_RING`."""
    ring_start: int = 0
    """From which address on."""
    ceiling: Offset = _FIRST_OFFSET
    log_start: Offset = _FIRST_OFFSET
    wal_end: Offset = _FIRST_OFFSET
    leader_revision: int = 0
    ceiling_revision: int = 0
    log_start_revision: int = 0
    wal_end_revision: int = 0


@dataclass(slots=True)
class TopicEntry:
    name: TopicName
    id: TopicId
    overrides: Mapping[str, str]
    created_ms: int
    partitions: list[PartitionEntry]
    revision: int
    """Of the config key."""


@dataclass(slots=True)
class ClusterTopics:
    _topics: dict[str, TopicEntry] = field(default_factory=dict)
    _by_id: dict[bytes, TopicEntry] = field(default_factory=dict)
    # Also of topics whose config is not there (yet): on a store with small transactions it is written last.
    _partitions: dict[str, dict[int, PartitionEntry]] = field(default_factory=dict)
    _deleted_at: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[TopicEntry]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: str) -> TopicEntry | None:
        return self._topics.get(name)

    def find_by_id(self, topic_id: bytes) -> TopicEntry | None:
        return self._by_id.get(topic_id)

    def get(self, name: str) -> TopicEntry:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name!r} does not exist")
        return topic

    def partition(self, name: str, index: int) -> PartitionEntry:
        partitions = self.get(name).partitions
        if not 0 <= index < len(partitions):
            raise PartitionNotFound(f"topic {name!r} has {len(partitions)} partitions, no partition {index}")
        return partitions[index]

    def led_by(self, broker_id: str) -> Iterator[tuple[TopicName, Partition]]:
        """The partitions this broker leads."""
        for topic in self:
            for index, partition in enumerate(topic.partitions):
                if partition.leader == broker_id:
                    yield topic.name, Partition(index)

    def load(self, items: Iterable[KeyValue]) -> None:
        for item in items:
            self.apply(item.key, item.value, revision=item.mod_revision)

    def apply(self, path: str, value: bytes | None, *, revision: int) -> None:
        """Take the new value of a key, None if it was deleted. Keys that are not about topics are ignored."""
        # Segments outnumber all else under the topics, and are the tier's.
        if not path.startswith("/topics/") or keys.SEGMENTS_IN_PATH in path:
            return
        match keys.parse(path):
            case keys.TopicConfigKey(topic=topic) if value is None:
                self._forget_topic(topic, revision)
            case keys.TopicConfigKey(topic=topic) if value is not None:
                self._set_config(topic, value, revision)
            case keys.LeaderKey(topic=topic, partition=index) if value is not None:
                self._set_leader(self._entry(topic, index, revision), value, revision)
            case keys.CeilingKey(topic=topic, partition=index) if value is not None:
                entry = self._entry(topic, index, revision)
                if entry is not None and revision > entry.ceiling_revision:
                    entry.ceiling = Offset(values.decode(pb.PartitionOffset, value).offset)
                    entry.ceiling_revision = revision
            case keys.LogStartKey(topic=topic, partition=index) if value is not None:
                entry = self._entry(topic, index, revision)
                if entry is not None and revision > entry.log_start_revision:
                    entry.log_start = Offset(values.decode(pb.PartitionOffset, value).offset)
                    entry.log_start_revision = revision
            case keys.WalEndKey(topic=topic, partition=index) if value is not None:
                entry = self._entry(topic, index, revision)
                if entry is not None and revision > entry.wal_end_revision:
                    entry.wal_end = Offset(values.decode(pb.PartitionOffset, value).offset)
                    entry.wal_end_revision = revision
            case _:
                # Partition keys are deleted only together with their topic's config, which says it all.
                pass

    def apply_deletion(self, deleted: KeyRange, *, revision: int) -> None:
        """A range was deleted, of which only the bounds are known: our own transaction."""
        for name in [name for name in self._topics if keys.topic_config(name) in deleted]:
            self._forget_topic(name, revision)

    def _set_config(self, name: str, value: bytes, revision: int) -> None:
        old = self._topics.get(name)
        if revision <= (self._deleted_at.get(name, 0) if old is None else old.revision):
            return
        config = values.decode(pb.TopicConfig, value)
        known = self._partitions.setdefault(name, {})
        topic = TopicEntry(
            name=TopicName(name),
            id=TopicId(config.topic_id),
            overrides=dict(config.overrides),
            created_ms=config.created_ms,
            partitions=[known.setdefault(index, PartitionEntry()) for index in range(config.partitions)],
            revision=revision,
        )
        if old is not None:
            self._by_id.pop(old.id, None)
        self._topics[name] = topic
        self._by_id[topic.id] = topic

    def _set_leader(self, entry: PartitionEntry | None, value: bytes, revision: int) -> None:
        if entry is None or revision <= entry.leader_revision:
            return
        leader = values.decode(pb.PartitionLeader, value)
        entry.leader = leader.broker_id
        entry.leader_epoch = LeaderEpoch(leader.leader_epoch)
        entry.replicas = tuple(leader.replicas)
        entry.isr = tuple(leader.isr)
        entry.epoch_starts = tuple(
            (LeaderEpoch(start.leader_epoch), Offset(start.start_offset)) for start in leader.epoch_starts
        )
        entry.ring_id, entry.ring_start = leader.ring_id, leader.ring_start
        entry.leader_revision = revision

    def _entry(self, topic: str, index: int, revision: int) -> PartitionEntry | None:
        if revision <= self._deleted_at.get(topic, 0):
            return None
        partitions = self._partitions.get(topic)
        if partitions is None:
            partitions = self._partitions[topic] = {}
        entry = partitions.get(index)
        if entry is None:
            entry = partitions[index] = PartitionEntry()
        return entry

    def _forget_topic(self, name: str, revision: int) -> None:
        topic = self._topics.get(name)
        if topic is not None and topic.revision > revision:
            return
        self._deleted_at[name] = max(revision, self._deleted_at.get(name, 0))
        self._partitions.pop(name, None)
        if topic is not None:
            del self._topics[name]
            self._by_id.pop(topic.id, None)
