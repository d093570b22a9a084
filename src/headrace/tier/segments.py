"""Which objects hold which offsets, in memory: the metastore's segment entries, by topic id and partition.

Only committed segments are here. Filled once at start and changed only after the metastore has changed, so a
reader never learns of an object that could still be taken back. One event loop owns it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from headrace.tier.format.framing import TAIL_SIZE
from headrace.tier.format.object import ENTRY_SIZE, RUN_BYTES_MAX

PartitionKey = tuple[bytes, int]


class LiveSegment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A committed range of offsets and the bytes that hold it. `revision` is that of its metastore entry."""

    base_offset: int
    end_offset: int
    object_id: int
    key: str
    object_size: int
    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    leader_epoch: int
    committed_ms: int
    revision: int


class SegmentTable:
    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, list[LiveSegment]] = {}
        self._objects: dict[int, Referenced] = {}
        self.object_bytes = 0
        """Of all objects that hold a live segment."""
        self.dead_bytes = 0
        """Of these, what the objects would lose if they were written anew with their live segments alone."""

    def add(self, partition: PartitionKey, segment: LiveSegment) -> None:
        segments = self._partitions.setdefault(partition, [])
        index = bisect_right(segments, segment.end_offset, key=_end_offset)
        assert index == 0 or segments[index - 1].end_offset <= segment.base_offset, "segments overlap"
        assert index == len(segments) or segment.end_offset <= segments[index].base_offset, "segments overlap"
        segments.insert(index, segment)
        held = self._objects.get(segment.object_id)
        if held is None:
            held = self._objects[segment.object_id] = Referenced(segment.key, segment.object_size, Counter())
            self.object_bytes += held.size
            self.dead_bytes += held.dead_bytes
        held.places[partition] += 1
        self._count_live(held, _needed_bytes(segment))

    def remove(self, partition: PartitionKey, gone: Iterable[LiveSegment]) -> None:
        bases = {(segment.base_offset, segment.object_id) for segment in gone}
        kept: list[LiveSegment] = []
        for segment in self._partitions.get(partition, []):
            if (segment.base_offset, segment.object_id) in bases:
                self._release(segment, partition)
            else:
                kept.append(segment)
        if kept:
            self._partitions[partition] = kept
        else:
            self._partitions.pop(partition, None)

    def set(self, partition: PartitionKey, segments: Sequence[LiveSegment]) -> None:
        """Replace all that was known of a partition."""
        self.remove(partition, list(self.of(partition)))
        for segment in segments:
            self.add(partition, segment)

    def forget_topic(self, topic_id: bytes) -> None:
        for partition in [key for key in self._partitions if key[0] == topic_id]:
            self.remove(partition, list(self._partitions[partition]))

    def of(self, partition: PartitionKey) -> Sequence[LiveSegment]:
        """The partition's segments in offset order. Not a copy: do not keep it across an await."""
        return self._partitions.get(partition, ())

    def at(self, partition: PartitionKey, offset: int) -> LiveSegment | None:
        """The segment that holds `offset`, or the first one behind it."""
        segments = self._partitions.get(partition, ())
        index = bisect_right(segments, offset, key=_end_offset)
        return segments[index] if index < len(segments) else None

    def since(self, partition: PartitionKey, offset: int, timestamp_ms: int) -> LiveSegment | None:
        """Of the segments from the one that holds `offset` on, the first with a record at or after `timestamp_ms`."""
        segments = self._partitions.get(partition, ())
        following = islice(segments, bisect_right(segments, offset, key=_end_offset), None)
        return next((segment for segment in following if segment.max_timestamp_ms >= timestamp_ms), None)

    def end_offset(self, partition: PartitionKey) -> int:
        segments = self._partitions.get(partition)
        return segments[-1].end_offset if segments else 0

    def object_size(self, object_id: int) -> int | None:
        held = self._objects.get(object_id)
        return held.size if held is not None else None

    def is_referenced(self, object_id: int) -> bool:
        return object_id in self._objects

    @property
    def object_count(self) -> int:
        return len(self._objects)

    def objects(self) -> Iterator[tuple[int, "Referenced"]]:
        """Every object that holds a live segment, oldest first. What goes while somebody walks them is left out."""
        return (
            (object_id, held)
            for object_id in sorted(self._objects)
            if (held := self._objects.get(object_id)) is not None
        )

    def places_of(self, object_id: int) -> Iterable[PartitionKey]:
        """The partitions that have segments in the object."""
        held = self._objects.get(object_id)
        return list(held.places) if held is not None else ()

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(list(self._partitions))

    def _release(self, segment: LiveSegment, partition: PartitionKey) -> None:
        held = self._objects[segment.object_id]
        held.places[partition] -= 1
        if not held.places[partition]:
            del held.places[partition]
        self._count_live(held, -_needed_bytes(segment))
        if not held.places:
            del self._objects[segment.object_id]
            self.object_bytes -= held.size
            self.dead_bytes -= held.dead_bytes

    def _count_live(self, held: "Referenced", size: int) -> None:
        self.dead_bytes -= held.dead_bytes
        held.live_bytes += size
        self.dead_bytes += held.dead_bytes


@dataclass(slots=True)
class Referenced:
    """An object in use: how many segments each partition has in it, and what they would take in a new object."""

    key: str
    size: int
    places: Counter[PartitionKey]
    live_bytes: int = TAIL_SIZE

    @property
    def dead_bytes(self) -> int:
        return max(0, self.size - self.live_bytes)


def _needed_bytes(segment: LiveSegment) -> int:
    """The batches and, at most, their part of the index."""
    return segment.length + ENTRY_SIZE * (1 + segment.length // RUN_BYTES_MAX)


def _end_offset(segment: LiveSegment) -> int:
    return segment.end_offset
