"""What the bucket holds, folded from manifests: topics, their partitions, the live segments of each.

`Inventory.apply` is the only way state changes, and it is the same code for a broker, for `restore`, and for
Spark. It refuses a manifest out of order, of another cluster, or one that would make two segments overlap.
Offsets may have holes between segments (offsets are never reused, so a lost disk or key compaction leaves
some behind); they never overlap.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec

from headrace.errors import Corrupted, TopicNotFound
from headrace.tier.format.manifest import Aborted, LogStart, Manifest, Segment, SegmentRef, TopicEntry

_Item = TypeVar("_Item", Segment, SegmentRef, LogStart)


class PartitionKey(NamedTuple):
    topic_id: str
    partition: int


class PartitionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition's part of the inventory. A value: a new one replaces it at every change."""

    topic_id: str
    partition: int
    log_start: int = 0
    last_stable_offset: int = 0
    segments: tuple[Segment, ...] = ()
    """By offset, without overlaps."""
    aborted: tuple[Aborted, ...] = ()
    """By the offset of their markers."""

    @property
    def end_offset(self) -> int:
        """The first offset that is not in the bucket."""
        return max(self.segments[-1].end_offset, self.log_start) if self.segments else self.log_start

    def segment_at(self, offset: int) -> Segment | None:
        """The segment that holds `offset`, or the first one after it."""
        index = bisect_right(self.segments, offset, key=_end_offset)
        return self.segments[index] if index < len(self.segments) else None


def _end_offset(segment: Segment) -> int:
    return segment.end_offset


@dataclass(slots=True)
class Inventory:
    """The state after manifest `number`."""

    cluster_id: str
    number: int = 0
    topics: dict[str, TopicEntry] = field(default_factory=dict)
    partitions: dict[PartitionKey, PartitionState] = field(default_factory=dict)

    def topic_named(self, name: str) -> TopicEntry:
        """The live topic of that name. A re-created topic has another id."""
        for topic in self.topics.values():
            if topic.name == name:
                return topic
        raise TopicNotFound(f"no committed records of topic {name}")

    def partition(self, topic_id: str, partition: int) -> PartitionState:
        """Its state; an empty one when nothing was committed yet."""
        known = self.partitions.get(PartitionKey(topic_id, partition))
        return known or PartitionState(topic_id=topic_id, partition=partition)

    def apply(self, manifest: Manifest) -> None:
        """Move on by one commit. On any error the inventory is left as it was."""
        if manifest.number != self.number + 1:
            raise Corrupted(f"manifest {manifest.number} cannot follow {self.number}")
        if manifest.cluster_id != self.cluster_id:
            raise Corrupted(f"manifest {manifest.number} is of cluster {manifest.cluster_id}")
        changed = self._changed_partitions(manifest)
        for topic in manifest.topics:
            self._forget_namesake(topic)
            self.topics[topic.topic_id] = topic
        self.partitions.update(changed)
        for topic_id in manifest.deleted_topics:
            self._forget(topic_id)
        self.number = manifest.number

    def _changed_partitions(self, manifest: Manifest) -> dict[PartitionKey, PartitionState]:
        removed = _by_partition(manifest.removed)
        added = _by_partition(manifest.added)
        starts = _by_partition(manifest.log_starts)
        changed: dict[PartitionKey, PartitionState] = {}
        for key in removed.keys() | added.keys() | starts.keys():
            state = self.partition(*key)
            state = _without(state, removed.get(key, ()))
            state = _with(state, added.get(key, ()))
            for start in starts.get(key, ()):
                state = _starting_at(state, start.offset)
            changed[key] = state
        return changed

    def _forget_namesake(self, topic: TopicEntry) -> None:
        """A name belongs to one topic: a new id under it means the old topic is gone."""
        for other in [t for t in self.topics.values() if t.name == topic.name and t.topic_id != topic.topic_id]:
            self._forget(other.topic_id)

    def _forget(self, topic_id: str) -> None:
        self.topics.pop(topic_id, None)
        for key in [key for key in self.partitions if key.topic_id == topic_id]:
            del self.partitions[key]


def _by_partition(items: Iterable[_Item]) -> dict[PartitionKey, list[_Item]]:
    grouped: dict[PartitionKey, list[_Item]] = {}
    for item in items:
        grouped.setdefault(PartitionKey(item.topic_id, item.partition), []).append(item)
    return grouped


def _without(state: PartitionState, refs: Sequence[SegmentRef]) -> PartitionState:
    if not refs:
        return state
    gone = {(ref.base_offset, ref.key) for ref in refs}
    kept = tuple(s for s in state.segments if (s.base_offset, s.key) not in gone)
    if len(kept) + len(gone) != len(state.segments):
        raise Corrupted(f"{state.topic_id}-{state.partition}: a removed segment was not there")
    return msgspec.structs.replace(state, segments=kept)


def _with(state: PartitionState, added: Sequence[Segment]) -> PartitionState:
    if not added:
        return state
    segments = sorted((*state.segments, *added), key=_end_offset)
    for before, after in pairwise(segments):
        if after.base_offset < before.end_offset:
            raise Corrupted(
                f"{state.topic_id}-{state.partition}: segments {before.base_offset}-{before.end_offset} "
                f"and {after.base_offset}-{after.end_offset} overlap"
            )
    aborted = {abort.last_offset: abort for abort in state.aborted}
    aborted.update((abort.last_offset, abort) for segment in added for abort in segment.aborted)
    return msgspec.structs.replace(
        state,
        segments=tuple(segments),
        aborted=tuple(aborted[offset] for offset in sorted(aborted)),
        last_stable_offset=max(state.last_stable_offset, *(s.last_stable_offset for s in added)),
    )


def _starting_at(state: PartitionState, offset: int) -> PartitionState:
    """Log start only rises. Segments below it stay listed until a later manifest removes them."""
    log_start = max(state.log_start, offset)
    return msgspec.structs.replace(
        state,
        log_start=log_start,
        last_stable_offset=max(state.last_stable_offset, log_start),
        aborted=tuple(abort for abort in state.aborted if abort.last_offset >= log_start),
    )
