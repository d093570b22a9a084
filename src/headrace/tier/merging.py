"""Which small objects are merged, and which segments move. Pure.

Objects are chosen, not partitions: a merged object holds the same quiet partitions as its sources did, so merging
never turns one shared object into a thousand small ones. Of each partition the segments that follow each other in the
chosen objects become one; a segment whose neighbour lies elsewhere stays where it is until its turn comes.
"""

from collections.abc import Container, Sequence

import msgspec

from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable


class Stretch(msgspec.Struct, frozen=True):
    """Neighbouring segments of one partition that become one."""

    place: PartitionKey
    segments: tuple[LiveSegment, ...]


def small_objects(
    table: SegmentTable, *, source_bytes: int, target_bytes: int, count_max: int, excluded: Container[str] = ()
) -> list[int]:
    """Ids of the oldest small objects that together make one of about `target_bytes`."""
    chosen: list[int] = []
    total = 0
    for object_id, held in table.objects():
        if held.size >= source_bytes or held.key in excluded:
            continue
        if len(chosen) == count_max or (chosen and total + held.size > target_bytes):
            break
        chosen.append(object_id)
        total += held.size
    return chosen


def stretches(table: SegmentTable, objects: Sequence[int]) -> list[Stretch]:
    """Per partition, its first row of neighbours in the chosen objects. Single ones move too, to free their object."""
    chosen = set(objects)
    found: list[Stretch] = []
    for place in dict.fromkeys(place for object_id in objects for place in table.places_of(object_id)):
        row: list[LiveSegment] = []
        for segment in table.of(place):
            if segment.object_id in chosen:
                row.append(segment)
            elif row:
                break
        if row:
            found.append(Stretch(place, tuple(row)))
    return found
