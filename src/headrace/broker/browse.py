"""Records for a person to look at: from an offset on, forwards, decoded beside the event loop.

A consumer reads batches as they lie and decodes them itself. Here the node decodes, for its console and its API, so the work is
bounded and done in a thread: a batch of a kilobyte may hold a million records.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.broker.fetch import Fetch
from headrace.broker.topics import PartitionLog
from headrace.errors import HeadraceError, NotLeader
from headrace.log.transactions import AbortedTransaction
from headrace.records.batch import BatchHeader, Buffer, Piece, bytes_of, iterate_batches
from headrace.records.filters import EVERYTHING, RecordFilter
from headrace.records.record import Record, read_batch_records

READ_BYTES: Final = 1 << 20
"""Of one partition at a time: what a page shows fits, and a thread decodes it in a few milliseconds."""
DECODED_BYTES_MAX: Final = 32 << 20
"""One batch, decompressed. A larger one is named, not opened."""


_TIMES_MAX: Final = 10_000


class SeenRecord(msgspec.Struct, frozen=True, gc=False):
    """A record, and what its batch says of it."""

    partition: int
    record: Record
    batch_base_offset: int
    batch_end_offset: int
    leader_epoch: int
    codec: int
    producer_id: int
    is_transactional: bool
    is_aborted: bool


class Seen(msgspec.Struct, frozen=True):
    """`next_offset` is where to go on; `is_end` when there was nothing more to read there."""

    records: list[SeenRecord]
    next_offset: int
    is_end: bool
    scanned: int
    """Records that were looked at, those that did not match included."""


async def browse(
    fetch: Fetch, partition: PartitionLog, offset: int, *, end_offset: int, count: int, chosen: RecordFilter
) -> Seen:
    """Up to `count` matching records from `offset` on, below `end_offset`; one read, so perhaps fewer.

    `OffsetOutOfRange` for what is not there any more.
    """
    end = min(end_offset, partition.high_watermark)
    if offset >= end:
        return Seen([], offset, True, 0)
    pieces = await _read(fetch, partition, offset)
    aborted = partition.aborted_between(offset, end)
    return await asyncio.to_thread(_decode, partition.index, pieces, offset, end, count, chosen, aborted)


async def _read(fetch: Fetch, partition: PartitionLog, offset: int) -> Sequence[Piece]:
    """Whole batches up to the high watermark: one that goes beyond the wanted end holds what is wanted, too."""
    end = partition.high_watermark
    partition.check_offset(offset)
    if partition.is_hot(offset):
        return partition.read_tail(offset, READ_BYTES, end, at_least_one=True).slices
    async with fetch.cold_slots:
        pieces = await partition.read_cold_pieces(offset, READ_BYTES, end)
    # It was awaited: the topic may be gone by now, or its records deleted.
    if partition.removed:
        raise NotLeader(f"{partition.topic_name}-{partition.index} is gone")
    partition.check_offset(offset)
    return pieces


def _decode(
    index: int,
    pieces: Sequence[Piece],
    offset: int,
    end: int,
    count: int,
    chosen: RecordFilter,
    aborted: Sequence[AbortedTransaction],
) -> Seen:
    found: list[SeenRecord] = []
    next_offset = offset
    scanned = 0
    for piece in pieces:
        for header, batch in iterate_batches(bytes_of(piece)):
            if header.base_offset >= end:
                return Seen(found, next_offset, True, scanned)
            for record in _records_of(header, batch):
                if not offset <= record.offset < end:
                    continue
                if len(found) >= count:
                    return Seen(found, next_offset, False, scanned)
                next_offset = record.offset + 1
                scanned += 1
                if chosen.matches(record):
                    found.append(_seen(index, header, record, aborted))
            next_offset = max(next_offset, min(header.end_offset, end))
    return Seen(found, next_offset, next_offset >= end, scanned)


def _records_of(header: BatchHeader, batch: Buffer) -> Sequence[Record]:
    if header.is_control or not header.record_count:
        return ()
    try:
        return list(read_batch_records(batch, header, size_max=DECODED_BYTES_MAX))
    except HeadraceError as error:
        # Shown in its place: one batch that cannot be read must not hide those behind it.
        note = f"batch of {header.record_count} records cannot be shown: {error}".encode()
        return (Record(header.base_offset, header.max_timestamp_ms, None, None, (("headrace.unreadable", note),)),)


def _seen(partition: int, header: BatchHeader, record: Record, aborted: Sequence[AbortedTransaction]) -> SeenRecord:
    return SeenRecord(
        partition=partition,
        record=record,
        batch_base_offset=header.base_offset,
        batch_end_offset=header.end_offset,
        leader_epoch=header.leader_epoch,
        codec=header.codec,
        producer_id=header.producer_id,
        is_transactional=header.is_transactional,
        is_aborted=header.is_transactional
        and any(
            each.producer_id == header.producer_id and each.first_offset <= record.offset <= each.marker_offset
            for each in aborted
        ),
    )


class RecordTimes:
    """Times of records by their place, kept, for records do not change: what lag in time needs, without reading twice."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()

    async def of(self, partition: PartitionLog, offset: int) -> int | None:
        """The time of the first record at or behind `offset`; None where there is none, or it cannot be read now."""
        place = (partition.topic_id, partition.index, offset)
        if (known := self._known.get(place)) is not None:
            return known
        start = max(offset, partition.log_start)
        try:
            seen = await browse(
                self._fetch, partition, start, end_offset=partition.high_watermark, count=1, chosen=EVERYTHING
            )
        except HeadraceError:
            return None
        if not seen.records:
            return None
        self._known[place] = seen.records[0].record.timestamp_ms
        while len(self._known) > _TIMES_MAX:
            self._known.popitem(last=False)
        return self._known[place]
