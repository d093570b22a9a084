"""How many records lie in a range of offsets, as far as the bucket tells: offsets can be without a record. Pure.

Offsets that were lost with a disk are spanned by empty batches, and compaction by key takes records out. Counted as records,
a lost disk would keep a stream of a thousand offsets per trigger busy for days. A segment says how many records it has, not
where in it: they count as spread evenly.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.pipeline.source.log import PartitionView, View
from headrace.pipeline.source.offsets import TopicPartition


class _Stretch(NamedTuple):
    start: int
    end: int
    record_count: int


def records_between(partition: PartitionView, start: int, end: int) -> int:
    """About how many records `[start, end)` has. What only a broker has counts as one for each offset."""
    return sum(each.record_count for each in _stretches(partition, start, end))


def offset_behind(partition: PartitionView, start: int, end: int, record_count: int) -> int:
    """Where about `record_count` records from `start` on have been read: behind `start`, and at `end` at most.

    Offsets without records behind them come along.
    """
    left = record_count
    position = start
    for stretch in _stretches(partition, start, end):
        if stretch.record_count > left:
            taken = (stretch.end - stretch.start) * left // stretch.record_count
            return max(stretch.start + taken, position, start + 1)
        left -= stretch.record_count
        position = stretch.end
    return end


def waiting_count(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], view: View) -> int:
    """How many records there are to read, partitions that `start` does not know left out."""
    return sum(_waiting(start, end, view).values())


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], view: View, records_max: int
) -> dict[TopicPartition, int]:
    """Ends that take about `records_max` records, shared out by how much each partition has waiting.

    No partition that has something waiting is left out, however small its share.
    """
    waiting = _waiting(start, end, view)
    total = sum(waiting.values())
    if total <= records_max:
        return dict(end)
    limited = {}
    for place, count in waiting.items():
        first = start.get(place, end[place])
        share = max(records_max * count // total, 1)
        limited[place] = offset_behind(view[place], first, end[place], share) if first < end[place] else end[place]
    return limited


def _waiting(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], view: View
) -> dict[TopicPartition, int]:
    return {place: records_between(view[place], start.get(place, end[place]), end[place]) for place in end}


def _stretches(partition: PartitionView, start: int, end: int) -> Iterator[_Stretch]:
    """The parts of `[start, end)` that may have records, in order."""
    stored_end = start
    if partition.stored is not None:
        for segment in partition.stored.segments:
            low, high = max(start, segment.base_offset), min(end, segment.end_offset)
            if low < high:
                # Rounded up: a part of a segment that has records is never taken for empty.
                count = -(-segment.record_count * (high - low) // (segment.end_offset - segment.base_offset))
                yield _Stretch(low, high, count)
        stored_end = max(start, partition.stored.end_offset)
    if stored_end < end:
        yield _Stretch(stored_end, end, end - stored_end)
