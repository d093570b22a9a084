"""From wanted offsets or times to byte ranges of objects. No I/O: the caller fetches what is named here.

Two steps, because footers cost a GET and the inventory often suffices:

    ranges = plan(inventory.partition(topic_id, 3), start=100, end=200)     # whole segments, from the inventory
    pieces = split(ranges[0], decode_footer(...), bytes_max=8 << 20)      # at run borders, from the footer

A range's bytes are whole batches, and may begin before `start` and go past `end`: readers drop the records
outside. `start` and `end` of a range are already cut to what was asked for and to the log start.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from headrace.ids import Partition, TopicId
from headrace.tier.format.inventory import PartitionState
from headrace.tier.format.manifest import Segment
from headrace.tier.format.object import Footer, Run


class ObjectRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes to get, and the offsets in them that were asked for."""

    topic_id: str
    partition: int
    start: int
    end: int
    """Exclusive."""
    key: str
    position: int
    length: int
    object_size: int
    footer_size: int
    record_count: int
    """In these bytes, an upper bound of what `start` and `end` leave."""
    max_timestamp_ms: int
    crc: int | None = None
    """CRC-32C of exactly these bytes, when the range is one run."""

    @property
    def footer_position(self) -> int:
        return self.object_size - self.footer_size


def plan(
    partition: PartitionState,
    *,
    start: int | None = None,
    end: int | None = None,
    since_ms: int | None = None,
    is_read_committed: bool = False,
) -> list[ObjectRange]:
    """Ranges that hold every committed record of `[start, end)` not older than `since_ms`.

    Time only leaves out segments that are older altogether; it does not cut. Offsets below the log start are
    skipped silently: compare `start` with `partition.log_start` first where that matters.
    """
    low = max(partition.log_start, start or 0)
    high = partition.end_offset if end is None else end
    if is_read_committed:
        high = min(high, partition.last_stable_offset)
    if low >= high:
        return []
    return [
        _range_of(segment, max(low, segment.base_offset), min(high, segment.end_offset))
        for segment in partition.segments
        if segment.end_offset > low
        and segment.base_offset < high
        and (since_ms is None or segment.max_timestamp_ms >= since_ms)
    ]


def split(
    whole: ObjectRange,
    footer: Footer,
    *,
    bytes_max: int,
    since_ms: int | None = None,
) -> list[ObjectRange]:
    """Cut a planned range at run borders into pieces of about `bytes_max`, without the runs nobody needs."""
    pieces: list[ObjectRange] = []
    group: list[Run] = []
    for run in runs_in(whole, footer):
        if since_ms is not None and run.max_timestamp_ms < since_ms:
            continue
        is_adjacent = bool(group) and group[-1].position + group[-1].length == run.position
        is_full = sum(r.length for r in group) + run.length > bytes_max
        if group and (is_full or not is_adjacent):
            pieces.append(_range_of_runs(whole, group))
            group = []
        group.append(run)
    if group:
        pieces.append(_range_of_runs(whole, group))
    return pieces


def runs_in(whole: ObjectRange, footer: Footer) -> list[Run]:
    """The runs that hold some of the range's offsets and lie inside its bytes."""
    topic_id = TopicId(UUID(whole.topic_id).bytes)
    return [
        run
        for run in footer.runs_of(topic_id, Partition(whole.partition))
        if run.last_offset >= whole.start
        and run.base_offset < whole.end
        and whole.position <= run.position < whole.position + whole.length
    ]


def segment_for_time(partition: PartitionState, timestamp_ms: int) -> Segment | None:
    """The first live segment that has a record at or after the time: where ListOffsets goes on looking."""
    for segment in partition.segments:
        if segment.end_offset > partition.log_start and segment.max_timestamp_ms >= timestamp_ms:
            return segment
    return None


def _range_of(segment: Segment, start: int, end: int) -> ObjectRange:
    return ObjectRange(
        topic_id=segment.topic_id,
        partition=segment.partition,
        start=start,
        end=end,
        key=segment.key,
        position=segment.position,
        length=segment.length,
        object_size=segment.object_size,
        footer_size=segment.footer_size,
        record_count=segment.record_count,
        max_timestamp_ms=segment.max_timestamp_ms,
    )


def _range_of_runs(whole: ObjectRange, runs: Sequence[Run]) -> ObjectRange:
    first, last = runs[0], runs[-1]
    return msgspec.structs.replace(
        whole,
        start=max(whole.start, first.base_offset),
        end=min(whole.end, last.end_offset),
        position=first.position,
        length=last.position + last.length - first.position,
        record_count=sum(run.record_count for run in runs),
        max_timestamp_ms=max(run.max_timestamp_ms for run in runs),
        crc=first.crc if len(runs) == 1 else None,
    )
