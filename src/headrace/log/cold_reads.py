"""Reading what memory does not hold: from object storage below `uploaded_end`, from the WAL or the spill above it.

Records move while these reads wait. Whoever finds nothing looks again when `uploaded_end` has risen meanwhile: what was
uploaded may have left the WAL before it was read there.
"""

from typing import TYPE_CHECKING

from headrace.log.readers import UploadRead
from headrace.records.batch import Buffer, Piece, read_header

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore


async def read_pieces(
    partition: "PartitionLog", store: "LogStore", *, offset: int, max_bytes: int, end_offset: int
) -> list[Piece]:
    """At least one batch where there is any; what lies in a file stays there."""
    while True:
        uploaded_end = partition.uploaded_end
        found: list[Piece] = []
        if offset < uploaded_end:
            found = await store.remote.read(
                partition.topic_id,
                partition.index,
                offset=offset,
                end_offset=min(end_offset, uploaded_end),
                max_bytes=max_bytes,
            )
        if not found and partition.uploaded_end == uploaded_end:
            # Behind what is uploaded: memory may hold batches before it that neither object storage nor the ring has.
            start = max(offset, uploaded_end)
            found = [*await _read_wal(partition, store, offset=start, max_bytes=max_bytes, end_offset=end_offset)]
        if found or partition.uploaded_end == uploaded_end:
            return found


async def read_for_upload(
    partition: "PartitionLog", store: "LogStore", *, offset: int, max_bytes: int, end_offset: int
) -> UploadRead:
    """Durable batches from `offset` up to `end_offset`, from memory where it has them."""
    end_offset = min(end_offset, partition.durable_end)
    if partition.is_hot(offset):
        hot = partition.read_tail(offset, max_bytes, end_offset, at_least_one=True)
        return UploadRead(list(hot.slices), hot.end_offset)
    cold = await _read_wal(partition, store, offset=offset, max_bytes=max_bytes, end_offset=end_offset)
    return UploadRead(cold, read_header(cold[-1]).end_offset if cold else -1)


async def _read_wal(
    partition: "PartitionLog", store: "LogStore", *, offset: int, max_bytes: int, end_offset: int
) -> list[Buffer]:
    return await store.read_wal(partition.tail.stored(offset, max_bytes, end_offset))
