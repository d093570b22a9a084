"""Finding records of a partition by their time: first what object storage has, then the tail, batch by batch."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

from headrace.log.index import TailIndex
from headrace.log.remote import RemoteSegments
from headrace.records.batch import Buffer, read_header
from headrace.records.walk import Timed, first_since, newest_of

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog


async def find_time(
    partition: "PartitionLog", index: TailIndex, remote: RemoteSegments, timestamp_ms: int
) -> tuple[int, int] | None:
    """Offset and time of the first record at or after `timestamp_ms`, or None."""
    searched_end = partition.log_start
    # What is uploaded while object storage is searched may be gone from the index behind it: search that, too.
    while searched_end < partition.uploaded_end:
        searched_end = partition.uploaded_end
        found = await remote.find_time(partition.topic_id, partition.index, timestamp_ms)
        if found is not None and found.offset >= partition.log_start:
            return found.offset, found.timestamp_ms
    end = max(searched_end, partition.log_start)
    while True:
        # By offset and not by row each time: the index may lose its front while we read.
        row = index.find_time(timestamp_ms, index.find(end))
        if row >= index.find_end(partition.high_watermark):
            return None
        end = index.ends[row]
        first = await _seen(
            partition, index.offsets[row], partial(first_since, timestamp_ms=timestamp_ms), asked=timestamp_ms
        )
        if first is not None:
            return first
        if partition.uploaded_end > end:
            return await find_time(partition, index, remote, timestamp_ms)


async def newest_record(partition: "PartitionLog", index: TailIndex, remote: RemoteSegments) -> tuple[int, int] | None:
    """Offset and time of the record with the greatest timestamp below the high watermark."""
    best: tuple[int, int] | None = None
    searched_end = -1
    while searched_end < partition.uploaded_end:
        searched_end = partition.uploaded_end
        uploaded = await remote.newest(partition.topic_id, partition.index)
        if uploaded is not None and uploaded.offset >= partition.log_start:
            best = (uploaded.offset, uploaded.timestamp_ms)
    first, last = index.find(partition.log_start), index.find_end(partition.high_watermark)
    rows = list(range(first, last))[:1]
    # The newest record of the first batch may be deleted; that of any other batch is still there.
    if first + 1 < last:
        rows.append(max(range(first + 1, last), key=index.max_timestamps.__getitem__))
    for offset in [index.offsets[row] for row in rows]:
        newest = await _seen(partition, offset, newest_of, asked=None)
        if newest is not None and (best is None or newest.timestamp_ms > best[1]):
            best = newest
    return best


async def _seen(
    partition: "PartitionLog", offset: int, look: Callable[..., Timed | None], *, asked: int | None
) -> Timed | None:
    """What `look` finds in the batch at `offset`, without the records below the log start."""
    for batch in await _batch_at(partition, offset):
        start = partition.log_start
        question = time_question((partition.topic_id, partition.index), batch, start=start, asked=asked)
        return await partition.inspection.of(batch, partial(look, start=start), question=question)
    return None


def time_question(place: tuple[bytes, int], batch: Buffer, *, start: int, asked: int | None) -> Hashable:
    """Names a search for the first record since `asked`, or for the newest one, in one batch of one partition.

    Where the log starts matters only inside the batch: elsewhere the question would be new with every record deleted.
    """
    header = read_header(batch)
    return place, header.base_offset, header.crc, max(start, header.base_offset), asked


async def _batch_at(partition: "PartitionLog", offset: int) -> list[Buffer]:
    if partition.is_hot(offset):
        return list(partition.read_tail(offset, 1, partition.end_offset, at_least_one=True).slices)
    return (await partition.read_cold(offset, 1, partition.end_offset))[:1]
