"""Records that have left the WAL, read back from objects: the log's `RemoteSegments`.

A read finds its segment in the table, the segment's runs in the object's footer, and the bytes in the block cache. A
reader that goes on where it stopped is sequential: the blocks ahead of it are fetched before it asks, twice as far
each time, up to the read-ahead limit and to its share of the cache: what is fetched ahead must still be there when it
is asked for, however many read at once. Quiet partitions have little in each object: once two of an object's partitions
are read, what lies behind a small block comes along with it, so that a scan of many costs as few GETs as a scan of one.
An object that is missing was superseded while the read was planned: the table already knows its successor, so the read
is planned once more.

Records that cannot be read, because their object is damaged or lost, end a read in front of them. One that begins there is
refused with their offsets and the name of the object, and stands among the node's problems until it is mended or skipped.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import groupby, islice
from typing import Final

import msgspec

from headrace.errors import Corrupted, HeadraceError, ObjectNotFound, StoreUnavailable
from headrace.file_range import FileRange
from headrace.ids import Partition, TopicId
from headrace.log.inspection import Inspection
from headrace.log.remote import TimedOffset
from headrace.log.times import time_question
from headrace.records.batch import Piece, read_header
from headrace.records.walk import first_since, newest_of
from headrace.tier.block import BLOCK_BYTES, Block, BlockRef, DamagedRun, Slice, blocks_of
from headrace.tier.block_cache import SPAN_BLOCKS, BlockCache
from headrace.tier.damage import DamagedRange, DamagedRanges
from headrace.tier.format.object import Footer, Run
from headrace.tier.metrics import TierMetrics
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable

_READS_REMEMBERED: Final = 256
"""A sequential reader that has not gone on for so many reads of others is forgotten: it only loses its read-ahead."""
_AHEAD_SHARE: Final = 0.75
"""Of the cache, for all readers' blocks from the one they are at to the last one ahead. The rest is for looking back."""
_READING_MAX: Final = 16_384
"""Partitions whose last read is remembered. A forgotten one only has bytes brought along that nobody needs any more."""
_PLANS_MAX: Final = 1024
"""Segments whose blocks are kept cut."""
_PLAN_ATTEMPTS: Final = 3


class TierReader:
    def __init__(
        self,
        table: SegmentTable,
        cache: BlockCache,
        *,
        read_ahead_bytes: int,
        cache_bytes: int,
        metrics: TierMetrics,
        damage: DamagedRanges,
        inspection: Inspection,
        log_start: Callable[[PartitionKey], int] = lambda partition: 0,
        memory_start: Callable[[PartitionKey], int | None] = lambda partition: None,
    ) -> None:
        """`memory_start`: nobody comes here for what lies behind it, so it is not worth reading ahead."""
        self._damage = damage
        self._inspection = inspection
        self._table = table
        self._cache = cache
        self._ahead_max = read_ahead_bytes // BLOCK_BYTES
        self._shared_blocks = int(cache_bytes * _AHEAD_SHARE) // BLOCK_BYTES
        self._metrics = metrics
        self._log_start = log_start
        self._memory_start = memory_start
        self._plans: OrderedDict[tuple[str, int], list[BlockRef]] = OrderedDict()
        self._readers: OrderedDict[tuple[bytes, int, int], _Reader] = OrderedDict()
        """By the offset a sequential reader would ask for next; least recently read first."""
        self._reads = 0
        self._reading: OrderedDict[PartitionKey, int] = OrderedDict()
        """Where the last read of a partition began; least recently read first."""
        self._first_readers: OrderedDict[str, PartitionKey] = OrderedDict()
        """By object: the partition that was the first to want a small block of it."""

    # -- what the log asks ---------------------------------------------------------------------------------------

    def segment_count(self, topic_id: bytes, partition: int) -> int:
        return len(self._table.of((topic_id, partition)))

    def size_bytes(self, topic_id: bytes, partition: int) -> int:
        return sum(segment.length for segment in self._table.of((topic_id, partition)))

    async def read(
        self, topic_id: bytes, partition: int, *, offset: int, end_offset: int, max_bytes: int
    ) -> list[Piece]:
        reader = self._readers.pop((topic_id, partition, offset), _NEW_READER)
        place = (topic_id, partition)
        self._note_reading(place, offset)
        found: list[Piece] = []
        size = 0
        position = offset
        while size < max_bytes and position < end_offset:
            segment = self._table.at(place, position)
            if segment is None or segment.base_offset >= end_offset:
                break
            try:
                block = await self._block_at(place, position)
                if block is None:
                    position = segment.end_offset
                    continue
                piece = await self._read_block(block, position, end_offset, max_bytes - size)
            except (Corrupted, ObjectNotFound, StoreUnavailable) as error:
                unreadable = await self._unreadable(place, segment, position, error)
                if found:
                    break
                raise unreadable from error
            if piece is None:
                position = block.ref.end_offset
                continue
            if found and size + len(piece.data) > max_bytes:
                break
            found.append(piece.data)
            size += len(piece.data)
            if self._damage:
                self._damage.note_read(place, position, piece.end_offset)
            position = piece.end_offset
        self._metrics.tier_read_bytes_total += size
        self._remember((topic_id, partition, position), reader.ahead)
        self._look_ahead(place, position, min(reader.ahead, self._shared_blocks // len(self._readers)))
        return found

    async def _unreadable(
        self,
        place: PartitionKey,
        segment: LiveSegment,
        position: int,
        error: Corrupted | ObjectNotFound | StoreUnavailable,
    ) -> HeadraceError:
        """What a read hears that begins at `position`."""
        start, end, reason = position, segment.end_offset, str(error)
        if isinstance(error, DamagedRun):
            start, end = error.damage.front_end, error.damage.end_offset
        elif isinstance(error, ObjectNotFound):
            reason = f"{segment.key} is missing from the object store"
        elif isinstance(error, StoreUnavailable):
            # A store that is asked for bytes behind an object's end answers as one that is out of order.
            size = await self._cache.size_of(segment.key)
            if size is None or size == segment.object_size:
                return error
            reason = f"{segment.key} has {size} bytes and had {segment.object_size}"
        return self._damage.note(
            DamagedRange(place=place, base_offset=start, end_offset=end, key=segment.key, reason=reason)
        )

    async def find_time(self, topic_id: bytes, partition: int, timestamp_ms: int) -> TimedOffset | None:
        place = (topic_id, partition)
        offset = self._log_start(place)
        while (segment := self._table.since(place, offset, timestamp_ms)) is not None:
            try:
                found = await self._find_time_in(place, segment, timestamp_ms)
            except (Corrupted, ObjectNotFound) as error:
                if isinstance(error, ObjectNotFound) and self._is_superseded(place, segment):
                    continue
                raise await self._unreadable(place, segment, segment.base_offset, error) from error
            if found is not None:
                return found
            offset = segment.end_offset
        return None

    async def _find_time_in(self, place: PartitionKey, segment: LiveSegment, timestamp_ms: int) -> TimedOffset | None:
        for ref in await self._blocks(place, segment):
            if _newest_time(ref) >= timestamp_ms:
                found = await self._first_since(place, await self._cache.get(ref), timestamp_ms)
                if found is not None:
                    return found
        return None

    async def newest(self, topic_id: bytes, partition: int) -> TimedOffset | None:
        place = (topic_id, partition)
        segment: LiveSegment | None = None
        while True:
            try:
                best: TimedOffset | None = None
                for segment in sorted(self._table.of(place), key=lambda each: -each.max_timestamp_ms):
                    if not _can_be_newer(segment.max_timestamp_ms, best):
                        break
                    best = await self._newer_in(place, segment, best)
                return best
            except (Corrupted, ObjectNotFound) as error:
                assert segment is not None, "an object was read"
                if isinstance(error, ObjectNotFound) and self._is_superseded(place, segment):
                    continue
                raise await self._unreadable(place, segment, segment.base_offset, error) from error

    async def _newer_in(
        self, place: PartitionKey, segment: LiveSegment, best: TimedOffset | None
    ) -> TimedOffset | None:
        """Blocks by their newest timestamp, until none can hold a newer record: markers have times of their own."""
        if segment.end_offset <= self._log_start(place):
            return best
        for ref in sorted(await self._blocks(place, segment), key=lambda each: -_newest_time(each)):
            if not _can_be_newer(_newest_time(ref), best):
                break
            found = await self._newest_in(place, await self._cache.get(ref))
            if found is not None and _can_be_newer(found.timestamp_ms, best):
                best = found
        return best

    async def _read_block(self, block: Block, offset: int, end_offset: int, max_bytes: int) -> Slice | None:
        """What lies in a file counts only while the system has it in memory: what it reads anew is verified anew."""
        piece = block.read(offset, end_offset, max_bytes)
        if piece is not None and isinstance(piece.data, FileRange) and not piece.data.is_in_memory():
            block = await self._cache.verify_again(block.ref)
            piece = block.read(offset, end_offset, max_bytes)
        return piece

    async def _first_since(self, place: PartitionKey, block: Block, timestamp_ms: int) -> TimedOffset | None:
        log_start = self._log_start(place)
        for start in block.batch_starts():
            header = read_header(block.data, start)
            if header.is_control or header.max_timestamp_ms < timestamp_ms:
                continue
            look = partial(first_since, timestamp_ms=timestamp_ms, start=log_start)
            batch = block.data[start : start + header.size]
            question = time_question(place, batch, start=log_start, asked=timestamp_ms)
            found = await self._inspection.of(batch, look, question=question)
            if found is not None:
                return TimedOffset(*found)
        return None

    async def _newest_in(self, place: PartitionKey, block: Block) -> TimedOffset | None:
        log_start = self._log_start(place)
        headers = [(start, read_header(block.data, start)) for start in block.batch_starts()]
        best: TimedOffset | None = None
        for start, header in sorted(headers, key=lambda each: -each[1].max_timestamp_ms):
            if not _can_be_newer(header.max_timestamp_ms, best):
                break
            if header.is_control or header.end_offset <= log_start:
                continue
            # The newest of its records may be deleted; then those that are left are older.
            batch = block.data[start : start + header.size]
            question = time_question(place, batch, start=log_start, asked=None)
            found = await self._inspection.of(batch, partial(newest_of, start=log_start), question=question)
            if found is not None and _can_be_newer(found.timestamp_ms, best):
                best = TimedOffset(*found)
        return best

    # -- finding bytes -------------------------------------------------------------------------------------------

    async def _block_at(self, place: PartitionKey, offset: int) -> Block | None:
        """The block that holds `offset` or the next one in its segment; None when the segment ends before that."""
        for attempt in range(_PLAN_ATTEMPTS):
            segment = self._table.at(place, offset)
            if segment is None:
                return None
            try:
                blocks = await self._blocks(place, segment)
                index = bisect_right(blocks, offset, key=_block_end)
                if index == len(blocks):
                    return None
                if not self._cache.has(blocks[index]):
                    self._cache.prefetch_together([blocks[index], *self._company(place, blocks[index])])
                return await self._cache.get(blocks[index])
            except ObjectNotFound:
                if attempt == _PLAN_ATTEMPTS - 1 or not self._is_superseded(place, segment):
                    raise
        return None

    def _is_superseded(self, place: PartitionKey, segment: LiveSegment) -> bool:
        """Its object is missing: true if a merge replaced this segment."""
        self._cache.forget(segment.key)
        self._plans.pop((segment.key, segment.position), None)
        return self._table.at(place, segment.base_offset) is not segment

    async def _blocks(self, place: PartitionKey, segment: LiveSegment) -> list[BlockRef]:
        blocks = self._known_blocks(place, segment)
        if blocks is None:
            footer = await self._cache.footer(segment.key, segment.object_size, wanted_bytes=segment.length)
            blocks = self._plan(place, segment, footer)
        return blocks

    def _known_blocks(self, place: PartitionKey, segment: LiveSegment) -> list[BlockRef] | None:
        """None when the object's index is not in memory."""
        blocks = self._plans.get((segment.key, segment.position))
        if blocks is None and (footer := self._cache.find_footer(segment.key)) is not None:
            blocks = self._plan(place, segment, footer)
        return blocks

    def _plan(self, place: PartitionKey, segment: LiveSegment, footer: Footer) -> list[BlockRef]:
        blocks = self._plans[(segment.key, segment.position)] = _cut(segment, footer, place)
        if len(self._plans) > _PLANS_MAX:
            self._plans.popitem(last=False)
        return blocks

    def _note_reading(self, place: PartitionKey, offset: int) -> None:
        self._reading[place] = offset
        self._reading.move_to_end(place)
        if len(self._reading) > _READING_MAX:
            self._reading.popitem(last=False)

    def _company(self, place: PartitionKey, ref: BlockRef) -> list[BlockRef]:
        """Blocks of other partitions right behind a small one, up to a block in all, when such are wanted at all."""
        if ref.length >= BLOCK_BYTES or self._first_reader(ref.key, place) == place:
            return []
        footer = self._cache.find_footer(ref.key)
        runs = footer.runs if footer is not None else ()
        behind = islice(runs, bisect_left(runs, ref.position + ref.length, key=_run_position), None)
        company: list[BlockRef] = []
        for other_place, theirs in groupby(behind, key=_place_of):
            other = blocks_of(ref.key, list(theirs))[0]
            is_passed = self._reading.get(other_place, -1) >= other.end_offset
            if is_passed or self._cache.has(other) or other.position + other.length - ref.position > BLOCK_BYTES:
                break
            company.append(other)
        return company

    def _first_reader(self, key: str, place: PartitionKey) -> PartitionKey:
        first = self._first_readers.setdefault(key, place)
        if len(self._first_readers) > _PLANS_MAX:
            self._first_readers.popitem(last=False)
        return first

    # -- reading ahead -------------------------------------------------------------------------------------------

    def _look_ahead(self, place: PartitionKey, offset: int, count: int) -> None:
        """Begin to load what is missing of the `count` blocks from the one that holds `offset`, across segments.

        A single block at the far end waits for the next one, unless the reader is about to need it: together they are
        one GET.
        """
        ahead = self._blocks_ahead(place, offset, count)
        missing = [ref for ref in ahead if not self._cache.has(ref)]
        if missing and (len(missing) >= SPAN_BLOCKS or missing[0] is ahead[0]):
            self._cache.prefetch(missing)

    def _blocks_ahead(self, place: PartitionKey, offset: int, count: int) -> list[BlockRef]:
        """As far as the indexes are known. The first one that is not is sent for, so that it is the next time."""
        ahead: list[BlockRef] = []
        memory_start = self._memory_start(place)
        end_offset = sys.maxsize if memory_start is None else memory_start
        for _ in range(count):
            segment = self._table.at(place, offset)
            if segment is None or segment.base_offset >= end_offset or len(ahead) >= count:
                break
            try:
                blocks = self._known_blocks(place, segment)
            except Corrupted:
                break  # Whoever really wants those records will hear of it.
            if blocks is None:
                self._cache.prefetch_footer(segment.key, segment.object_size, wanted_bytes=segment.length)
                break
            index = bisect_right(blocks, offset, key=_block_end)
            ahead += [ref for ref in blocks[index : index + count - len(ahead)] if ref.base_offset < end_offset]
            offset = segment.end_offset
        return ahead

    def _remember(self, next_read: tuple[bytes, int, int], ahead: int) -> None:
        self._reads += 1
        self._readers[next_read] = _Reader(min(max(1, ahead * 2), self._ahead_max), self._reads)
        while next(iter(self._readers.values())).read_number <= self._reads - _READS_REMEMBERED:
            self._readers.popitem(last=False)


class _Reader(msgspec.Struct, frozen=True, gc=False):
    """Somebody who goes on where they stopped."""

    ahead: int
    """Blocks to have ahead of it after its next read."""
    read_number: int
    """Of its last read, among everybody's."""


_NEW_READER: Final = _Reader(0, 0)


def _cut(segment: LiveSegment, footer: Footer, place: PartitionKey) -> list[BlockRef]:
    runs = [
        run
        for run in footer.runs_of(TopicId(place[0]), Partition(place[1]))
        if segment.position <= run.position < segment.position + segment.length
    ]
    if not runs:
        raise Corrupted(f"{segment.key}: the index has no run of the segment at {segment.position}")
    return blocks_of(segment.key, runs)


def _place_of(run: Run) -> PartitionKey:
    return run.topic_id, run.partition


def _run_position(run: Run) -> int:
    return run.position


def _block_end(ref: BlockRef) -> int:
    return ref.end_offset


def _newest_time(ref: BlockRef) -> int:
    return max(run.max_timestamp_ms for run in ref.runs)


def _can_be_newer(timestamp_ms: int, best: TimedOffset | None) -> bool:
    return best is None or timestamp_ms > best.timestamp_ms
