"""Applies `cleanup.policy=compact` to what is in object storage, a partition at a time.

The segments above the last pass are *dirty*. When they outweigh the clean ones, a pass notes the newest offset of every
key in them and cleans all segments below; what changed is written anew and replaces its segments in one commit. Only
decided, uploaded records take part, and none younger than `min.compaction.lag.ms`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.errors import Corrupted, NotFound, Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger
from headrace.tier.block_cache import BlockCache
from headrace.tier.compactor import Compactor, Rewritten
from headrace.tier.describe import aborted_in, stable_below
from headrace.tier.format.object import check_run, iter_batches
from headrace.tier.key_cleaning import Cleaning
from headrace.tier.metrics import TierMetrics
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable
from headrace.tier.settings import TierSettings

_KEYS_MAX: Final = 1_000_000
"""Keys noted in one pass: some hundred megabytes. More dirty records wait for the next pass."""
_DIRTY_FRACTION: Final = 2
"""A pass is due when one part in this many is dirty, as Kafka's min.cleanable.dirty.ratio of 0.5."""

log = get_logger(__name__)


class KeyCompactor:
    def __init__(
        self,
        settings: TierSettings,
        *,
        blobs: BlobStore,
        compactor: Compactor,
        cache: BlockCache,
        logs: LogStore,
        table: SegmentTable,
        clock: Clock,
        metrics: TierMetrics,
    ) -> None:
        self._settings = settings
        self._blobs = blobs
        self._compactor = compactor
        self._cache = cache
        self._logs = logs
        self._table = table
        self._clock = clock
        self._metrics = metrics
        self._clean_end: dict[PartitionKey, int] = {}

    async def run_once(self, *, is_forced: bool = False) -> int:
        """One pass over every partition that is due; gives how many records went."""
        dropped = 0
        for partition in list(self._logs.partitions()):
            if not partition.policy.is_compacted or partition.removed:
                continue
            try:
                dropped += await self.compact(partition, is_forced=is_forced)
            except (NotFound, Unavailable) as error:
                log.info("key compaction put off", topic=partition.topic_name, reason=str(error))
            except Corrupted as error:
                log.error("key compaction met a corrupt object", topic=partition.topic_name, reason=str(error))
        return dropped

    async def compact(self, partition: PartitionLog, *, is_forced: bool = False) -> int:
        place = (partition.topic_id, partition.index)
        segments = self._eligible(partition)
        clean_end = self._clean_end.get(place, 0)
        dirty = [segment for segment in segments if segment.end_offset > clean_end]
        if not dirty or not (is_forced or _is_due(segments, dirty)):
            return 0
        # The markers of transactions that end above the cleaned part count as well: stable means decided.
        aborted = aborted_in(partition, 0, partition.end_offset)
        tombstones_before_ms = self._clock.now_ms() - partition.policy.delete_retention_ms
        cleaning = Cleaning(aborted, tombstones_before_ms=tombstones_before_ms)
        noted_end = await self._note(cleaning, dirty)
        cleanable = [segment for segment in segments if segment.end_offset <= noted_end]
        dropped = await self._clean(partition, cleaning, cleanable)
        self._clean_end[place] = noted_end
        self._metrics.tier_compacted_records_total += dropped
        return dropped

    def _eligible(self, partition: PartitionLog) -> list[LiveSegment]:
        stable = stable_below(partition, partition.uploaded_end)
        young_ms = self._clock.now_ms() - partition.policy.compaction_lag_min_ms
        found: list[LiveSegment] = []
        for segment in self._table.of((partition.topic_id, partition.index)):
            is_young = partition.policy.compaction_lag_min_ms > 0 and segment.max_timestamp_ms > young_ms
            if segment.end_offset > stable or is_young:
                break
            found.append(segment)
        return found

    async def _note(self, cleaning: Cleaning, dirty: Sequence[LiveSegment]) -> int:
        """The end of what was noted: all of it, unless there are too many keys for one pass."""
        for segment in dirty:
            for batch in await self._batches(segment):
                cleaning.note(batch)
                await asyncio.sleep(0)
            if len(cleaning.newest) >= _KEYS_MAX:
                return segment.end_offset
        return dirty[-1].end_offset

    async def _clean(self, partition: PartitionLog, cleaning: Cleaning, segments: Sequence[LiveSegment]) -> int:
        """Rewrite what changes, neighbours together, up to the size of one object and of one transaction at a time."""
        total = 0
        changed: list[LiveSegment] = []
        batches: list[memoryview] = []
        for segment in segments:
            kept, dropped = await self._clean_segment(cleaning, segment)
            total += dropped
            is_full = (
                sum(map(len, batches)) >= self._settings.compact_target_bytes
                or len(changed) >= self._compactor.stretch_segments_max
            )
            if changed and (not dropped or is_full):
                await self._compactor.replace([Rewritten(partition, tuple(changed), batches)])
                changed, batches = [], []
            if dropped:
                changed.append(segment)
                batches += kept
        if changed:
            await self._compactor.replace([Rewritten(partition, tuple(changed), batches)])
        return total

    async def _clean_segment(self, cleaning: Cleaning, segment: LiveSegment) -> tuple[list[memoryview], int]:
        kept: list[memoryview] = []
        dropped = 0
        for batch in await self._batches(segment):
            cleaned = cleaning.clean(batch)
            if cleaned.batch is not None:
                kept.append(memoryview(cleaned.batch))
            dropped += cleaned.dropped
            await asyncio.sleep(0)
        return kept, dropped

    async def _batches(self, segment: LiveSegment) -> list[memoryview]:
        """Past the read cache: a pass over everything would push out what consumers read."""
        data = memoryview(await self._blobs.get_range(segment.key, segment.position, segment.length))
        footer = await self._cache.footer(segment.key, segment.object_size)
        for run in footer.runs:
            if segment.position <= run.position < segment.position + segment.length:
                start = run.position - segment.position
                check_run(run, data[start : start + run.length])
        return list(iter_batches(data))


def _is_due(segments: Sequence[LiveSegment], dirty: Sequence[LiveSegment]) -> bool:
    total = sum(segment.length for segment in segments)
    return sum(segment.length for segment in dirty) * _DIRTY_FRACTION >= total
