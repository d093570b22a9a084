"""Which small objects are merged, and which segments move. Pure.

Objects are chosen, not partitions: a merged object holds the same quiet partitions as its sources did, so merging
never turns one shared object into a thousand small ones. Of each partition the segments that follow each other in the
chosen objects become one; a segment whose neighbour lies elsewhere stays where it is until its turn comes.
"""

from collections.abc import Container, Iterable, Sequence

import msgspec

from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable


class Stretch(msgspec.Struct, frozen=True):
    """Neighbouring segments of one partition that become one."""

    place: PartitionKey
    segments: tuple[LiveSegment, ...]


def small_objects(
    table: SegmentTable,
    places: Iterable[PartitionKey],
    *,
    source_bytes: int,
    target_bytes: int,
    count_max: int,
    excluded: Container[str] = (),
) -> list[int]:
    """Ids of the oldest small objects that together make one of about `target_bytes`."""
    sizes = {
        segment.object_id: segment.object_size
        for place in places
        for segment in table.of(place)
        if segment.object_size < source_bytes and segment.key not in excluded
    }
    chosen: list[int] = []
    total = 0
    for object_id in sorted(sizes):
        if len(chosen) == count_max or (chosen and total + sizes[object_id] > target_bytes):
            break
        chosen.append(object_id)
        total += sizes[object_id]
    return chosen


def stretches(table: SegmentTable, places: Iterable[PartitionKey], objects: Sequence[int]) -> list[Stretch]:
    """Per partition, its first row of neighbours in the chosen objects. Single ones move too, to free their object."""
    chosen = set(objects)
    found: list[Stretch] = []
    for place in places:
        row: list[LiveSegment] = []
        for segment in table.of(place):
            if segment.object_id in chosen:
                row.append(segment)
            elif row:
                break
        if row:
            found.append(Stretch(place, tuple(row)))
    return found
