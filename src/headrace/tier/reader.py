"""Records that have left the WAL, read back from objects: the log's `RemoteSegments`.

A read finds its segment in the table, the segment's runs in the object's footer, and the bytes in the block cache. A
reader that goes on where it stopped is sequential: the blocks ahead of it are fetched before it asks, twice as far
each time, up to the read-ahead limit. An object that is missing was superseded while the read was planned: the table
already knows its successor, so the read is planned once more.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace.errors import Corrupted, HeadraceError, ObjectNotFound
from headrace.ids import Partition, TopicId
from headrace.log.remote import TimedOffset
from headrace.records.batch import Buffer, read_header
from headrace.records.record import read_batch_records
from headrace.tier.blocks import BLOCK_BYTES, Block, BlockCache, BlockRef, blocks_of
from headrace.tier.format.object import Footer
from headrace.tier.metrics import TierMetrics
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable

_READERS_MAX: Final = 4096
"""Sequential readers remembered; a forgotten one only loses its read-ahead."""
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
        metrics: TierMetrics,
        log_start: Callable[[PartitionKey], int] = lambda partition: 0,
    ) -> None:
        self._table = table
        self._cache = cache
        self._ahead_max = read_ahead_bytes // BLOCK_BYTES
        self._metrics = metrics
        self._log_start = log_start
        self._plans: OrderedDict[tuple[str, int], list[BlockRef]] = OrderedDict()
        self._ahead: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()
        """By the offset a sequential reader would ask for next: how many blocks to fetch ahead of it."""

    # -- what the log asks ---------------------------------------------------------------------------------------

    def segment_count(self, topic_id: bytes, partition: int) -> int:
        return len(self._table.of((topic_id, partition)))

    def size_bytes(self, topic_id: bytes, partition: int) -> int:
        return sum(segment.length for segment in self._table.of((topic_id, partition)))

    async def read(
        self, topic_id: bytes, partition: int, *, offset: int, end_offset: int, max_bytes: int
    ) -> list[Buffer]:
        ahead = self._ahead.pop((topic_id, partition, offset), 0)
        place = (topic_id, partition)
        found: list[Buffer] = []
        size = 0
        position = offset
        while size < max_bytes and position < end_offset:
            segment = self._table.at(place, position)
            if segment is None or segment.base_offset >= end_offset:
                break
            block = await self._block_at(place, position)
            if block is None:
                position = segment.end_offset
                continue
            piece = block.read(position, end_offset, max_bytes - size)
            if piece is None:
                position = block.ref.end_offset
                continue
            if found and size + len(piece.data) > max_bytes:
                break
            found.append(piece.data)
            size += len(piece.data)
            position = piece.end_offset
        await self._look_ahead(place, position, ahead)
        self._metrics.tier_read_bytes_total += size
        self._remember(topic_id, partition, position, ahead)
        return found

    async def find_time(self, topic_id: bytes, partition: int, timestamp_ms: int) -> TimedOffset | None:
        place = (topic_id, partition)
        for segment in list(self._table.of(place)):
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            for ref in await self._blocks(place, segment):
                if _newest_time(ref) < timestamp_ms:
                    continue
                found = _first_since(await self._cache.get(ref), timestamp_ms, self._log_start(place))
                if found is not None:
                    return found
        return None

    async def newest(self, topic_id: bytes, partition: int) -> TimedOffset | None:
        """Blocks by their newest timestamp, until none can hold a newer record: markers have times of their own."""
        place = (topic_id, partition)
        best: TimedOffset | None = None
        for segment in sorted(self._table.of(place), key=lambda each: -each.max_timestamp_ms):
            if best is not None and best.timestamp_ms >= segment.max_timestamp_ms:
                break
            for ref in sorted(await self._blocks(place, segment), key=lambda each: -_newest_time(each)):
                if best is not None and best.timestamp_ms >= _newest_time(ref):
                    break
                found = _newest_in(await self._cache.get(ref))
                if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
                    best = found
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
                return await self._cache.get(blocks[index]) if index < len(blocks) else None
            except ObjectNotFound:
                self._cache.forget(segment.key)
                self._plans.pop((segment.key, segment.position), None)
                if attempt == _PLAN_ATTEMPTS - 1 or self._table.at(place, offset) is segment:
                    raise
        return None

    async def _blocks(self, place: PartitionKey, segment: LiveSegment) -> list[BlockRef]:
        name = (segment.key, segment.position)
        blocks = self._plans.get(name)
        if blocks is None:
            footer = await self._cache.footer(segment.key, segment.object_size)
            blocks = _cut(segment, footer, place)
            self._plans[name] = blocks
            if len(self._plans) > _PLANS_MAX:
                self._plans.popitem(last=False)
        return blocks

    # -- reading ahead -------------------------------------------------------------------------------------------

    async def _look_ahead(self, place: PartitionKey, offset: int, count: int) -> None:
        """Begin to load the `count` blocks behind the one that holds `offset`, across segments."""
        while count > 0:
            segment = self._table.at(place, offset)
            if segment is None:
                return
            try:
                blocks = await self._blocks(place, segment)
            except HeadraceError:
                # Whoever really wants those records will hear of it.
                return
            index = bisect_right(blocks, offset, key=_block_end)
            for ref in blocks[index : index + count]:
                self._cache.prefetch(ref)
            count -= max(1, len(blocks) - index)
            offset = segment.end_offset

    def _remember(self, topic_id: bytes, partition: int, next_offset: int, ahead: int) -> None:
        self._ahead[(topic_id, partition, next_offset)] = min(max(1, ahead * 2), self._ahead_max)
        if len(self._ahead) > _READERS_MAX:
            self._ahead.popitem(last=False)


def _cut(segment: LiveSegment, footer: Footer, place: PartitionKey) -> list[BlockRef]:
    runs = [
        run
        for run in footer.runs_of(TopicId(place[0]), Partition(place[1]))
        if segment.position <= run.position < segment.position + segment.length
    ]
    if not runs:
        raise Corrupted(f"{segment.key}: the index has no run of the segment at {segment.position}")
    return blocks_of(segment.key, runs)


def _block_end(ref: BlockRef) -> int:
    return ref.end_offset


def _newest_time(ref: BlockRef) -> int:
    return max(run.max_timestamp_ms for run in ref.runs)


def _first_since(block: Block, timestamp_ms: int, log_start: int) -> TimedOffset | None:
    for start in block.batch_starts():
        header = read_header(block.data, start)
        if header.is_control or header.max_timestamp_ms < timestamp_ms:
            continue
        for record in read_batch_records(block.data[start : start + header.size], header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= log_start:
                return TimedOffset(record.offset, record.timestamp_ms)
    return None


def _newest_in(block: Block) -> TimedOffset | None:
    headers = [(start, read_header(block.data, start)) for start in block.batch_starts()]
    data = [(start, header) for start, header in headers if not header.is_control]
    if not data:
        return None
    start, header = max(data, key=lambda each: each[1].max_timestamp_ms)
    batch = block.data[start : start + header.size]
    newest = max(read_batch_records(batch, header), key=lambda record: record.timestamp_ms)
    return TimedOffset(newest.offset, newest.timestamp_ms)
