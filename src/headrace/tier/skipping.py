"""Lets consumers pass records that are damaged for good: an operator's decision, made for one range at a time, and written down.

The segment is written anew: every batch of it that is provably right, and an empty batch over the offsets between. So the
bucket tells the same to the node, to Spark and to a restore, offsets stay where they are, and clients pass on by themselves.
What was skipped, by whom and when stays in the metastore, and with it in its snapshots.
"""

from typing import Final

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.control.metastore import Metastore, Put, prefix, read_all
from headrace.errors import Corrupted, Invalid, ObjectNotFound
from headrace.ids import Partition, TopicId
from headrace.log.partition import PartitionLog
from headrace.records.batch import Buffer, stamp
from headrace.records.builder import build_gap
from headrace.telemetry.logging import get_logger
from headrace.tier.compactor import Compactor, Rewritten
from headrace.tier.format.object import Footer, check_run, decode_footer, iter_batches, salvage
from headrace.tier.segments import LiveSegment, SegmentTable

SKIPPED: Final = prefix("/headrace/tier/skipped/")

log = get_logger(__name__)


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """What was given up, as the metastore keeps it: JSON below `/headrace/tier/skipped/`."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    key: str
    reason: str
    by: str
    at_ms: int


class _Kept(msgspec.Struct):
    """A segment taken apart: what is right, in order, with empty batches over the rest."""

    batches: list[memoryview]
    lost: list[tuple[int, int]]
    reason: str = ""

    def lose(self, start: int, end: int, *, leader_epoch: int, reason: str) -> None:
        gap = build_gap(end - start)
        stamp(gap, start, leader_epoch)
        self.batches.append(memoryview(gap))
        self.lost.append((start, end))
        self.reason = reason


class Skipper:
    def __init__(
        self, *, blobs: BlobStore, table: SegmentTable, compactor: Compactor, store: Metastore, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._table = table
        self._compactor = compactor
        self._store = store
        self._clock = clock

    async def skip(self, partition: PartitionLog, offset: int, *, by: str) -> list[Skipped]:
        """Give up what cannot be read of the segment that holds `offset`. `Invalid` where that offset can be read."""
        name = f"{partition.topic_name}-{partition.index}"
        segment = self._table.at((partition.topic_id, partition.index), offset)
        if segment is None or not segment.base_offset <= offset < segment.end_offset:
            raise Invalid(f"{name}: offset {offset} is not in object storage, so there is nothing to skip")
        kept = await self._take_apart(partition, segment)
        if not any(start <= offset < end for start, end in kept.lost):
            damaged = ", ".join(f"{start} to {end - 1}" for start, end in kept.lost) or "none"
            raise Invalid(f"{name}: offset {offset} can be read; damaged offsets of its segment: {damaged}")
        skipped = [
            Skipped(
                topic=partition.topic_name,
                partition=partition.index,
                base_offset=start,
                end_offset=end,
                key=segment.key,
                reason=kept.reason,
                by=by,
                at_ms=self._clock.now_ms(),
            )
            for start, end in kept.lost
        ]
        # Written down first: what is on record and was not done after all can be done again; the reverse nobody would know.
        await self._store.txn((), [Put(_path(partition, each), msgspec.json.encode(each)) for each in skipped])
        await self._compactor.replace([Rewritten(partition, (segment,), kept.batches)])
        for each in skipped:
            log.warning("damaged records skipped", **msgspec.structs.asdict(each))
        return skipped

    async def _take_apart(self, partition: PartitionLog, segment: LiveSegment) -> _Kept:
        kept = _Kept([], [])
        try:
            data = memoryview(await self._blobs.get(segment.key))
            footer = await self._footer(segment, data)
        except (ObjectNotFound, Corrupted) as error:
            is_missing = isinstance(error, ObjectNotFound)
            reason = f"{segment.key} is missing" if is_missing else f"{segment.key}: {error}"
            kept.lose(segment.base_offset, segment.end_offset, leader_epoch=segment.leader_epoch, reason=reason)
            return kept
        for run in footer.runs_of(TopicId(partition.topic_id), Partition(partition.index)):
            if not segment.position <= run.position < segment.position + segment.length:
                continue
            found: Buffer = data[run.position : run.position + run.length]
            try:
                check_run(run, found)
            except Corrupted:
                # Once more: one bad answer of the store is no reason to give anything up.
                found = await self._blobs.get_range(segment.key, run.position, run.length)
                try:
                    check_run(run, found)
                except Corrupted as error:
                    saved = salvage(run, found)
                    kept.batches += saved.front
                    if saved.front_end < saved.back_start:
                        reason = f"{segment.key}: {error}"
                        kept.lose(saved.front_end, saved.back_start, leader_epoch=run.leader_epoch, reason=reason)
                    kept.batches += saved.back
                    continue
            kept.batches += iter_batches(found)
        return kept

    async def _footer(self, segment: LiveSegment, data: memoryview) -> Footer:
        if len(data) == segment.object_size:
            try:
                return decode_footer(data)
            except Corrupted:
                pass  # Again, as above.
        data = memoryview(await self._blobs.get(segment.key))
        if len(data) != segment.object_size:
            raise Corrupted(f"{len(data)} bytes where {segment.object_size} were committed")
        return decode_footer(data)


def _path(partition: PartitionLog, skipped: Skipped) -> str:
    return f"{SKIPPED.start}{partition.topic_id.hex()}/{partition.index}/{skipped.base_offset:020d}"


async def all_skipped(store: Metastore) -> list[Skipped]:
    """Everything that was ever given up, in the order of topics and offsets."""
    found = (await read_all(store, SKIPPED)).items
    return [msgspec.json.decode(item.value, type=Skipped) for item in found]
