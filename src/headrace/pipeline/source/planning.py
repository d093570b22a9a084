"""From bounds to offsets, from offsets to byte ranges, from byte ranges to Spark tasks. Pure but for footers.

Offsets below what the bucket holds become `ObjectRead`s, cut at run borders; the rest becomes `TailRead`s from a broker.
A task costs more than several mebibytes do, so there are a few for every core and no more: small reads share one, large ones
are spread over several.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.pipeline.decoder import AbortedTransaction
from headrace.pipeline.source.density import offset_behind, records_between
from headrace.pipeline.source.errors import DataLost, InvalidOption
from headrace.pipeline.source.log import PartitionView, View
from headrace.pipeline.source.offsets import EARLIEST, LATEST, Position, TopicPartition
from headrace.pipeline.source.options import Bound, MissingTime
from headrace.pipeline.source.pruning import NOTHING_PRUNED, Pruning
from headrace.tier.format.object import Footer
from headrace.tier.format.plan import ObjectRange, plan, split

TASKS_PER_CORE: Final = 3
"""A task costs tens of milliseconds in both Pythons and the JVM, so few; more than one, so that no core waits long for the
last."""
TASK_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes one task reads at most: what is read again when it fails. Its memory does not grow with them."""
TASK_BYTES_MIN: Final = 4 * 1024 * 1024
"""Reads are put together until a task has this much, or more where there are enough tasks all the same."""
READ_BYTES_MAX: Final = 32 * 1024 * 1024
"""Larger ranges of an object are cut, so that tasks can be made of about the same size."""
RECORD_BYTES_GUESS: Final = 1024
"""Of a record that no segment tells us about."""


class ObjectRead(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one partition from one object."""

    place: TopicPartition
    topic_id: str
    bytes: ObjectRange
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def size(self) -> int:
        return self.bytes.length


class TailRead(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one partition from its leader."""

    place: TopicPartition
    topic_id: str
    start: int
    end: int
    size: int


Read = ObjectRead | TailRead
Task = tuple[Read, ...]
Offsets = dict[TopicPartition, int]


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one partition that are to be read."""

    partition: PartitionView
    start: int
    end: int


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How the user wants tasks cut; by default cores and bytes decide."""

    cores: int = 1
    """Tasks that run at the same time."""
    partitions_min: int | None = None
    records_per_partition_max: int | None = None


def resolve_bound(
    bound: Bound, view: View, offset_at: Callable[[PartitionView, int], int | None], *, is_start: bool
) -> Offsets:
    """The offset that `bound` means in every partition of `view`."""
    if bound.everywhere is not None:
        return {place: _named(bound.everywhere, partition) for place, partition in view.items()}
    if bound.offsets is not None:
        if not bound.is_partial:
            _require_same_places(bound.offsets, view)
        return {place: _named(bound.offsets.get(place, EARLIEST), partition) for place, partition in view.items()}
    if bound.timestamp_ms is not None:
        times = dict.fromkeys(view, bound.timestamp_ms)
    else:
        assert bound.timestamps_ms is not None, "a bound is always one of four things"
        times = bound.timestamps_ms
        _require_same_places(times, view)
    offsets: Offsets = {}
    for place, partition in view.items():
        found = offset_at(partition, times[place])
        if found is None and is_start and bound.missing_time is MissingTime.FAIL:
            raise InvalidOption(
                f"{place} has no record at or after {times[place]}; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        offsets[place] = partition.end if found is None else min(found, partition.end)
    return offsets


def starting_position(offsets: Offsets, view: View) -> Position:
    return Position(offsets=offsets, topic_ids={place.topic: view[place].topic_id for place in offsets})


def ending_position(start: Position, view: View, *, is_loss_fatal: bool) -> Position:
    """All that can be read now, never behind `start`. Partitions that appeared are in it, those that went are not.

    A topic that was created again where loss is no matter counts as one that appeared.
    """
    start = start.within(topic_ids_of(view), is_loss_fatal=is_loss_fatal)
    gone = start.offsets.keys() - view.keys()
    if gone and is_loss_fatal:
        raise DataLost(f"partitions {', '.join(map(str, sorted(gone)))} are gone{_LOSS_HINT}")
    ends = {}
    for place, partition in view.items():
        position = start.offsets.get(place, partition.log_start)
        if partition.end < position and is_loss_fatal:
            raise DataLost(f"{place} ends at {partition.end}, before the query's {position}{_LOSS_HINT}")
        ends[place] = max(partition.end, position)
    return starting_position(ends, view)


def topic_ids_of(view: View) -> dict[str, str]:
    return {place.topic: partition.topic_id for place, partition in view.items()}


def slices_of_stream(start: Position, end: Position, view: View, *, is_loss_fatal: bool) -> list[Slice]:
    """What a micro-batch reads. A topic made anew between its two ends is read from its beginning; one made anew since the
    batch was planned took the records with it."""
    now = topic_ids_of(view)
    first = start.within(end.topic_ids, is_loss_fatal=is_loss_fatal).within(now, is_loss_fatal=is_loss_fatal)
    last = end.within(now, is_loss_fatal=is_loss_fatal)
    return slices_between(first.offsets, last.offsets, view, is_loss_fatal=is_loss_fatal)


def slices_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], view: View, *, is_loss_fatal: bool
) -> list[Slice]:
    """What to read, in order. Raises `DataLost` when retention was faster, unless that is no matter."""
    slices = []
    for place in sorted(end):
        partition = view.get(place)
        if partition is None:
            if is_loss_fatal:
                raise DataLost(f"{place} is gone{_LOSS_HINT}")
            continue
        first = start.get(place, partition.log_start)
        if first < partition.log_start and first < end[place]:
            if is_loss_fatal:
                raise DataLost(
                    f"{place}: offsets {first} to {partition.log_start} were deleted before they were read{_LOSS_HINT}"
                )
            first = partition.log_start
        if first < end[place]:
            slices.append(Slice(partition=partition, start=first, end=end[place]))
    return slices


def lost_topics(start: Position, end: Position, view: View) -> list[str]:
    """Topics whose former records a micro-batch no longer finds, in words for a log."""
    now = topic_ids_of(view)
    return [
        f"{name}: the topic was deleted and created again"
        for name in sorted({*start.recreated(end.topic_ids), *end.recreated(now)})
    ]


def lost_offsets(start: Mapping[TopicPartition, int], slices: Sequence[Slice]) -> list[str]:
    """What is skipped where loss is no matter, in words for a log."""
    return [
        f"{piece.partition.place}: offsets {start[piece.partition.place]} to {piece.start}"
        for piece in slices
        if start.get(piece.partition.place, piece.start) < piece.start
    ]


def plan_tasks(
    slices: Sequence[Slice],
    footer_of: Callable[[ObjectRange], Footer] | None,
    *,
    has_broker: bool,
    layout: Layout = Layout(),
    pruning: Pruning = NOTHING_PRUNED,
) -> list[Task]:
    """Reads for every slice, grouped into tasks."""
    kept = [cut for piece in slices if (cut := _prune(piece, pruning)) is not None]
    if layout.partitions_min is None and layout.records_per_partition_max is None:
        tasks_wanted = layout.cores * TASKS_PER_CORE
        read_bytes_max = min(_size_wanted(sum(map(_stored_bytes, kept)), tasks_wanted), READ_BYTES_MAX)
        reads = [read for piece in kept for read in _plan_slice(piece, footer_of, has_broker, pruning, read_bytes_max)]
        return pack(reads, tasks_wanted=tasks_wanted, bytes_max=TASK_BYTES_MAX)
    return [
        tuple(reads)
        for piece in _cut_slices(kept, layout)
        if (reads := _plan_slice(piece, footer_of, has_broker, pruning, READ_BYTES_MAX))
    ]


def _stored_bytes(piece: Slice) -> int:
    """About how much of a slice lies in objects."""
    if piece.partition.stored is None:
        return 0
    return sum(whole.length for whole in plan(piece.partition.stored, start=piece.start, end=piece.end))


def _size_wanted(total: int, tasks_wanted: int) -> int:
    """Bytes of one task where there are to be so many."""
    return min(max(total // tasks_wanted, TASK_BYTES_MIN), TASK_BYTES_MAX)


def _plan_slice(
    piece: Slice,
    footer_of: Callable[[ObjectRange], Footer] | None,
    has_broker: bool,
    pruning: Pruning,
    read_bytes_max: int,
) -> list[Read]:
    partition = piece.partition
    stored_end = partition.stored_end if footer_of is not None else piece.start
    reads: list[Read] = []
    if partition.stored is not None and footer_of is not None and piece.start < stored_end:
        aborted = partition.aborted()
        for whole in plan(
            partition.stored, start=piece.start, end=min(piece.end, stored_end), since_ms=pruning.since_ms
        ):
            if not whole.record_count:
                continue  # It spans offsets that were lost.
            for part in _narrow(whole, partition, footer_of, pruning, read_bytes_max):
                near = tuple(a for a in aborted if a.first_offset < part.end and (a.last_offset or 0) >= part.start)
                reads.append(ObjectRead(place=partition.place, topic_id=partition.topic_id, bytes=part, aborted=near))
    tail_start = max(piece.start, stored_end)
    if tail_start < piece.end:
        if not has_broker:
            raise DataLost(
                f"{partition.place}: the bucket ends at {stored_end}, offsets up to {piece.end} were asked for; "
                "they are still on a broker, and kafka.bootstrap.servers is not given"
            )
        reads.append(
            TailRead(
                place=partition.place,
                topic_id=partition.topic_id,
                start=tail_start,
                end=piece.end,
                size=(piece.end - tail_start) * _record_size(partition),
            )
        )
    return reads


def _narrow(
    whole: ObjectRange,
    partition: PartitionView,
    footer_of: Callable[[ObjectRange], Footer],
    pruning: Pruning,
    bytes_max: int,
) -> list[ObjectRange]:
    """A footer costs a GET, so it is only looked at when it can save more than that."""
    assert partition.stored is not None
    segment = partition.stored.segment_at(whole.start)
    is_whole = segment is not None and segment.base_offset >= whole.start and segment.end_offset <= whole.end
    if is_whole and whole.length < 2 * bytes_max and pruning.since_ms is None:
        return [whole]
    return split(whole, footer_of(whole), bytes_max=bytes_max, since_ms=pruning.since_ms)


def pack(reads: Sequence[Read], *, tasks_wanted: int, bytes_max: int) -> list[Task]:
    """The reads in their order, in about as many tasks as are wanted; none larger than it may be but for a single read."""
    size_wanted = min(_size_wanted(sum(read.size for read in reads), tasks_wanted), bytes_max)
    tasks: list[Task] = []
    group: list[Read] = []
    size = 0
    for read in reads:
        if group and size + read.size > bytes_max:
            tasks.append(tuple(group))
            group, size = [], 0
        group.append(read)
        size += read.size
        if size >= size_wanted:
            tasks.append(tuple(group))
            group, size = [], 0
    if group:
        tasks.append(tuple(group))
    return tasks


def _cut_slices(slices: Sequence[Slice], layout: Layout) -> list[Slice]:
    """Into parts with as many records each, so that there are about `partitions_min` and none has more than allowed."""
    counts = [records_between(piece.partition, piece.start, piece.end) for piece in slices]
    total = sum(counts)
    cut: list[Slice] = []
    for piece, count in zip(slices, counts, strict=True):
        parts = 1
        if layout.records_per_partition_max is not None:
            parts = -(-count // layout.records_per_partition_max)
        if layout.partitions_min is not None and len(slices) < layout.partitions_min and total:
            parts = max(parts, -(-count * layout.partitions_min // total))
        parts = max(1, min(parts, count))
        start = piece.start
        for index in range(parts, 0, -1):
            left = records_between(piece.partition, start, piece.end)
            end = piece.end if index == 1 else offset_behind(piece.partition, start, piece.end, -(-left // index))
            if start < end:
                cut.append(Slice(partition=piece.partition, start=start, end=end))
            start = end
    return cut


def _prune(piece: Slice, pruning: Pruning) -> Slice | None:
    place = piece.partition.place
    if not pruning.takes(place.topic, place.partition):
        return None
    start, end = max(piece.start, pruning.offset_first), min(piece.end, pruning.offset_end)
    return Slice(partition=piece.partition, start=start, end=end) if start < end else None


def _record_size(partition: PartitionView) -> int:
    segments = partition.stored.segments if partition.stored is not None else ()
    if not segments or not segments[-1].record_count:
        return RECORD_BYTES_GUESS
    return max(1, segments[-1].length // segments[-1].record_count)


def _named(offset: int, partition: PartitionView) -> int:
    match offset:
        case _ if offset == EARLIEST:
            return partition.log_start
        case _ if offset == LATEST:
            return partition.end
        case _ if 0 <= offset <= partition.end:
            return offset
        case _:
            raise InvalidOption(f"{partition.place}: offset {offset} is past the end, {partition.end}")


def _require_same_places(given: Mapping[TopicPartition, int], view: View) -> None:
    if given.keys() != view.keys():
        missing = ", ".join(map(str, sorted(view.keys() - given.keys()))) or "none"
        unknown = ", ".join(map(str, sorted(given.keys() - view.keys()))) or "none"
        raise InvalidOption(f"offsets must name every partition once; missing: {missing}; unknown: {unknown}")


_LOSS_HINT: Final = ". Set failOnDataLoss=false to go on without them"
