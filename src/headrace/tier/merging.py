"""Which objects are merged or written anew, and which segments move. Pure.

Objects are chosen, not partitions: a merged object holds the same quiet partitions as its sources did, so merging
never turns one shared object into a thousand small ones. Of each partition the segments that follow each other in the
chosen objects become one; a segment whose neighbour lies elsewhere stays where it is until its turn comes.

An object goes when its last live segment goes: one slow partition keeps the dead bytes of all that shared it. Where these
are too many, the worst objects are written anew. Worst first costs least: one of which a tenth lives is freed by copying a
tenth of it. What lives on in them has long retention and moves together, so it seldom has to move again.
"""

from collections.abc import Container, Iterable, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from headrace.tier.segments import LiveSegment, PartitionKey, Referenced, SegmentTable


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


_RANKED_FACTOR: Final = 4
"""Objects looked at for each that one pass may take."""
_GOAL_PERCENT: Final = 80
"""Of the limit: freeing a little more than is due makes fewer and larger objects."""


def is_wasteful(table: SegmentTable, *, dead_percent: int, dead_bytes_min: int) -> bool:
    """Whether dead bytes make up so much of all objects in use that some are worth writing anew."""
    return table.dead_bytes >= dead_bytes_min and table.dead_bytes * 100 > table.object_bytes * dead_percent


def worst_objects(
    table: SegmentTable,
    candidates: Iterable[tuple[int, Referenced]],
    *,
    dead_percent: int,
    target_bytes: int,
    count_max: int,
) -> list[int]:
    """Ids of those with the largest dead share, as many as it takes, and no more than fill one object of `target_bytes`.

    Only such as can move together: of each partition an object holds one row of neighbours.
    """
    chosen: list[int] = []
    rows = _Rows(table)
    live = 0
    size, dead = table.object_bytes, table.dead_bytes
    for object_id, held in nlargest(_RANKED_FACTOR * count_max, candidates, key=_dead_share):
        is_enough = dead * 10_000 <= size * dead_percent * _GOAL_PERCENT
        if is_enough or len(chosen) == count_max or (chosen and live + held.live_bytes > target_bytes):
            break
        if rows.take(object_id, held.places):
            chosen.append(object_id)
            live += held.live_bytes
            size -= held.dead_bytes
            dead -= held.dead_bytes
    return chosen


def _dead_share(candidate: tuple[int, Referenced]) -> float:
    return candidate[1].dead_bytes / candidate[1].size


class _Rows:
    """Of each partition, the row of neighbouring segments that the chosen objects hold: first and last index."""

    def __init__(self, table: SegmentTable) -> None:
        self._table = table
        self._rows: dict[PartitionKey, tuple[int, int]] = {}
        self._places: dict[PartitionKey, dict[int, tuple[int, int]]] = {}

    def take(self, object_id: int, places: Iterable[PartitionKey]) -> bool:
        """Add what the object holds; False, and nothing has changed, if some of it is no neighbour of its partition's row."""
        longer: dict[PartitionKey, tuple[int, int]] = {}
        for place in places:
            first, last = held = self._held(place)[object_id]
            known = self._rows.get(place)
            if known is not None and first == known[1] + 1:
                longer[place] = known[0], last
            elif known is not None and last == known[0] - 1:
                longer[place] = first, known[1]
            elif known is None:
                longer[place] = held
            else:
                return False
        self._rows.update(longer)
        return True

    def _held(self, place: PartitionKey) -> dict[int, tuple[int, int]]:
        """By object: the first and the last of the partition's segments that are in it."""
        held = self._places.get(place)
        if held is None:
            held = self._places[place] = {}
            for index, segment in enumerate(self._table.of(place)):
                held[segment.object_id] = held.get(segment.object_id, (index, index))[0], index
        return held


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
