"""Makes few large objects out of many small ones, and full ones out of those that are mostly dead.

Batches are copied as they lie, never decoded. A merge reads whole source objects, checks their CRCs, writes one object, and replaces the segments in one commit. The
sources stay until their grace period is over. Whatever changed meanwhile (retention, another leader) makes the
commit fail, and the merge is forgotten; its object was only prepared, and expires.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore
from headrace.errors import Concurrent, Corrupted, NotFound, Unavailable
from headrace.ids import Partition, TopicId
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.records.batch import Buffer
from headrace.telemetry.logging import get_logger
from headrace.tier.commits import Commits, NewObject, topic_entry
from headrace.tier.describe import placed_at, ref_of, segment_of
from headrace.tier.format.manifest import Manifest
from headrace.tier.format.object import Kind, ObjectBuilder, Run, check_run, decode_footer, iter_batches
from headrace.tier.merging import Stretch, is_wasteful, small_objects, stretches, worst_objects
from headrace.tier.metrics import TierMetrics
from headrace.tier.plans import Replacement
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable
from headrace.tier.settings import TierSettings
from headrace.tier.slices import in_slices
from headrace.tier.writing import put_data

_SLICE: Final = 128
"""Partitions taken apart before others get the loop."""

_REWRITTEN_MAX: Final = 64
"""Objects that are written anew at once: each is a GET of all of it."""

log = get_logger(__name__)


class Rewritten(msgspec.Struct, frozen=True):
    """Segments of one partition, and the batches that take their place."""

    partition: PartitionLog
    segments: tuple[LiveSegment, ...]
    batches: list[memoryview]


class Compactor:
    def __init__(
        self,
        settings: TierSettings,
        *,
        blobs: BlobStore,
        commits: Commits,
        logs: LogStore,
        table: SegmentTable,
        metrics: TierMetrics,
        has_states: bool = False,
    ) -> None:
        """`has_states` as for the `Carrier`."""
        self._has_states = has_states
        self._settings = settings
        self._blobs = blobs
        self._commits = commits
        self._logs = logs
        self._table = table
        self._metrics = metrics
        self._corrupt_keys: set[str] = set()
        """Left alone until the next start, so that one damaged object does not end all merging."""

    async def run_once(self, *, objects_min: int | None = None) -> int:
        """Merge while there is something worth merging; gives how many segments were replaced."""
        replaced = 0
        try:
            while count := await self.merge(objects_min=objects_min):
                replaced += count
        except Unavailable as error:
            log.warning("merging put off", reason=str(error))
        except Corrupted as error:
            log.error("merging met a corrupt object", reason=str(error))
        return replaced

    async def merge(self, *, objects_min: int | None = None) -> int:
        """One merge, if enough small objects wait; gives how many segments it replaced."""
        await self._commits.settle()
        objects = small_objects(
            self._table,
            source_bytes=self._settings.compact_source_bytes,
            target_bytes=self._settings.compact_target_bytes,
            count_max=self._settings.compact_sources,
            excluded=self._corrupt_keys,
        )
        if len(objects) < (objects_min or self._settings.compact_sources):
            return 0
        chosen = [each for each in stretches(self._table, objects) if self._partition(each.place) is not None]
        if sum(len(each.segments) for each in chosen) == len(chosen):
            return 0
        rewritten = await self._rewrite(chosen)
        if not rewritten:
            return 0
        replaced = sum(len(each.segments) for each in rewritten)
        self._metrics.tier_merged_segments_total += replaced
        log.info("segments merged", objects=len(objects), segments=replaced, partitions=len(rewritten))
        return replaced

    async def free_dead(self) -> int:
        """Write objects anew without their dead bytes, until few enough are left; gives how many bytes were freed."""
        freed = 0
        try:
            while count := await self._free_worst():
                freed += count
        except Unavailable as error:
            log.warning("freeing dead bytes put off", reason=str(error))
        except Corrupted as error:
            log.error("freeing dead bytes met a corrupt object", reason=str(error))
        return freed

    async def _free_worst(self) -> int:
        await self._commits.settle()
        percent = self._settings.compact_dead_percent
        if not is_wasteful(self._table, dead_percent=percent, dead_bytes_min=self._settings.compact_source_bytes):
            return 0
        candidates = [
            (object_id, held)
            async for object_id, held in in_slices(list(self._table.objects()))
            # One that is being committed shows only a part of what lives in it.
            if held.dead_bytes and held.key not in self._corrupt_keys and not self._commits.is_under_way(object_id)
        ]
        objects = worst_objects(
            self._table,
            candidates,
            dead_percent=percent,
            target_bytes=self._settings.compact_target_bytes,
            count_max=_REWRITTEN_MAX,
        )
        dead_before = self._table.dead_bytes
        chosen = [each for each in stretches(self._table, objects) if self._partition(each.place) is not None]
        rewritten = await self._rewrite(chosen)
        freed = dead_before - self._table.dead_bytes
        if not rewritten or freed <= 0:
            return 0
        self._metrics.tier_freed_bytes_total += freed
        log.info("dead bytes freed", objects=len(objects), bytes=freed, segments=len(rewritten))
        return freed

    async def _rewrite(self, chosen: Sequence[Stretch]) -> list[Rewritten]:
        """Move these to one new object; none of them, if any changed meanwhile."""
        if not chosen:
            return []
        try:
            parts = await self._read({segment for each in chosen for segment in each.segments})
            rewritten = await self._take_apart(chosen, parts)
            if not rewritten:
                return []  # All of them were deleted, or given to others, while they were read.
            await self.replace(rewritten)
        except (Concurrent, NotFound) as error:
            # The object, which somebody else has merged; or the topic, which was deleted.
            log.info("merge given up", reason=str(error))
            return []
        self._metrics.tier_rewritten_bytes_total += sum(len(batch) for each in rewritten for batch in each.batches)
        return rewritten

    async def _take_apart(self, chosen: Sequence[Stretch], parts: "_Parts") -> list[Rewritten]:
        rewritten: list[Rewritten] = []
        for index, each in enumerate(chosen):
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            partition = self._partition(each.place)
            if partition is not None:
                batches = [batch for segment in each.segments for batch in parts.batches(segment)]
                rewritten.append(Rewritten(partition, each.segments, batches))
        return rewritten

    @property
    def stretch_segments_max(self) -> int:
        """Segments of one partition that one commit can replace: a transaction has room for that many, and the one in their place."""
        return max(1, self._commits.segments_max - 1)

    async def replace(self, rewritten: Sequence[Rewritten]) -> None:
        """Write one object for all of them and commit it in their segments' place."""
        target = await self._commits.new_object()
        try:
            await self._commits.name(target)
            kind = Kind.STREAM if len(rewritten) == 1 else Kind.STREAM_SET
            builder = ObjectBuilder(kind, has_states=self._has_states)
            runs = [await self._add(builder, each) for each in rewritten]
            if any(runs):
                await put_data(self._blobs, target.key, builder.chunks())
            # Each segment that goes counts like one that comes; ten sources make a commit eleven times its stretches.
            size = max(1, self._commits.segments_max // (1 + max(len(each.segments) for each in rewritten)))
            for start in range(0, len(rewritten), size):
                await self._commit(target, builder, rewritten[start : start + size], runs[start : start + size])
                await asyncio.sleep(0)
        finally:
            self._commits.give_up(target)

    async def _add(self, builder: ObjectBuilder, each: Rewritten) -> list[Run]:
        builder.begin(TopicId(each.partition.topic_id), Partition(each.partition.index))
        for start in range(0, len(each.batches), 64):
            builder.extend(each.batches[start : start + 64])
            await asyncio.sleep(0)
        return builder.finish()

    async def _commit(
        self, target: NewObject, builder: ObjectBuilder, rewritten: Sequence[Rewritten], runs: Sequence[list[Run]]
    ) -> None:
        changes: list[tuple[Replacement, Sequence[LiveSegment]]] = []
        added = []
        for each, part in zip(rewritten, runs, strict=True):
            partition = each.partition
            topic = self._commits.topic(partition.topic_id)
            placed = None
            if part:
                claim = self._commits.claim(
                    topic.id,
                    partition.index,
                    base_offset=each.segments[0].base_offset,
                    end_offset=each.segments[-1].end_offset,
                    leader_epoch=partition.leader_epoch,
                )
                placed = placed_at(claim, part)
                bucket_end = self._table.end_offset((partition.topic_id, partition.index))
                added.append(segment_of(partition, placed, target.key, builder, bucket_end=bucket_end))
            changes.append((self._commits.replacement(topic, partition.index, each.segments, placed), each.segments))
        topics = dict.fromkeys(each.partition.topic_id for each in rewritten)

        def describe(number: int, at_ms: int) -> Manifest:
            return msgspec.structs.replace(
                self._commits.new_manifest(number, at_ms),
                topics=tuple(topic_entry(self._commits.topic(topic_id)) for topic_id in topics),
                removed=tuple(ref_of(each.partition, segment) for each in rewritten for segment in each.segments),
                added=tuple(added),
            )

        await self._commits.replace(changes, describe, target=target, object_size=builder.size)

    async def _read(self, segments: set[LiveSegment]) -> "_Parts":
        """The batches of each segment, object by object: one GET brings all partitions."""
        parts = _Parts()
        wanted: dict[str, list[LiveSegment]] = {}
        for segment in segments:
            wanted.setdefault(segment.key, []).append(segment)
        for key in sorted(wanted):
            try:
                parts.add(key, await self._blobs.get(key), wanted[key])
            except Corrupted:
                self._corrupt_keys.add(key)
                raise
            await asyncio.sleep(0)
        return parts

    def _partition(self, place: PartitionKey) -> PartitionLog | None:
        partition = self._logs.find(*place)
        return None if partition is None or partition.removed else partition


class _Parts:
    """The wanted segments of source objects, taken apart on demand."""

    def __init__(self) -> None:
        self._segments: dict[tuple[str, int], memoryview] = {}

    def add(self, key: str, data: Buffer, wanted: Sequence[LiveSegment]) -> None:
        view = memoryview(data)
        # Little of a large object is copied, so that the rest need not stay in memory.
        is_copied = 2 * sum(segment.length for segment in wanted) < len(view)
        runs = sorted(decode_footer(view).runs, key=lambda run: run.position)
        for segment in wanted:
            end = segment.position + segment.length
            first = bisect_left(runs, segment.position, key=lambda run: run.position)
            behind = bisect_left(runs, end, key=lambda run: run.position)
            for run in runs[first:behind]:
                try:
                    check_run(run, view[run.position : run.position + run.length])
                except Corrupted as error:
                    raise Corrupted(f"{key}: {error}") from error
            part = view[segment.position : end]
            self._segments[(key, segment.position)] = memoryview(bytes(part)) if is_copied else part

    def batches(self, segment: LiveSegment) -> list[memoryview]:
        return list(iter_batches(self._segments[(segment.key, segment.position)]))
