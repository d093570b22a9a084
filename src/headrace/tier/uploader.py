"""Moves durable records from the WAL to object storage.

Two lanes, each with its own pace. *Rounds* take everything that waits, once per interval, and busy partitions sooner;
they serve `wal` topics. The *commit lane* serves `durability=object` topics, whose producers wait: it gathers for a
few milliseconds, uploads, and starts again. A partition is in one upload at a time, so its segments follow each other.

One upload: claim (IN_WAL -> UPLOADING), PUT, commit (IN_OBJECT_STORE, with the manifest), tell the log. Whatever fails
before the commit leaves the records in the WAL, where they still can be read, and they are taken again.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.control.catalogue import TopicEntry
from headrace.errors import Concurrent, NotFound, StoreUnavailable
from headrace.ids import Partition, TopicId
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.log.store import LogStore
from headrace.records.batch import Buffer, read_header
from headrace.telemetry.logging import get_logger
from headrace.tier.commits import Commits, NewObject, topic_entry
from headrace.tier.describe import placed_at, segment_of
from headrace.tier.format.manifest import Manifest
from headrace.tier.format.object import Footer, Kind, ObjectBuilder, Run
from headrace.tier.metrics import TierMetrics
from headrace.tier.packing import Parcel, Waiting, pack
from headrace.tier.plans import Claim
from headrace.tier.settings import TierSettings

_TICKS_PER_INTERVAL: Final = 10
_SURVEY_SLICE: Final = 512
"""Partitions looked at before others get the loop: about a millisecond."""
_PARTITIONS_PER_OBJECT: Final = 16_384
"""Keeps an object's index below 1.2 MB."""
_GATHER_SLICE: Final = 128
"""Partitions read before others get the loop."""
_RETRY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.001
_TRIM_FRACTION: Final = 16
"""Trimming writes a checkpoint of every partition, so it waits until this part of the ring can be gained."""

log = get_logger(__name__)


class _Piece(msgspec.Struct, frozen=True):
    """One partition's part of an upload."""

    partition: PartitionLog
    stretches: list[Buffer]
    base_offset: int
    end_offset: int


class Uploader:
    def __init__(
        self,
        settings: TierSettings,
        *,
        blobs: BlobStore,
        commits: Commits,
        logs: LogStore,
        clock: Clock,
        metrics: TierMetrics,
        topic_of: Callable[[str], TopicEntry],
        on_uploaded: Callable[[str, Footer], None] = lambda key, footer: None,
        is_store_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._blobs = blobs
        self._commits = commits
        self._logs = logs
        self._clock = clock
        self._metrics = metrics
        self._topic_of = topic_of
        self._on_uploaded = on_uploaded
        self._is_store_down = is_store_down
        self._busy: set[PartitionLog] = set()
        self._committing: dict[PartitionLog, None] = {}
        self._commit_wanted = asyncio.Event()
        self._round_wanted = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.upload_concurrency)
        self._next_round_ms = 0
        self._first_wanted_ms = 0
        self._next_checkpoint_ms = clock.monotonic_ms() + settings.snapshot_interval_ms
        self._checkpointed_lsn = 0
        self._flushed_at_round = 0

    # -- what the log tells us -----------------------------------------------------------------------------------

    def want_commit(self, partition: PartitionLog) -> None:
        """A producer waits for this partition to be in object storage."""
        if partition not in self._committing:
            if not self._committing:
                self._first_wanted_ms = self._clock.monotonic_ms()
            self._committing[partition] = None
            self._commit_wanted.set()

    def want_space(self) -> None:
        """The ring runs low: upload now, whatever the clock says."""
        self._next_round_ms = 0
        self._round_wanted.set()

    # -- the lanes -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._run_rounds())
            lanes.create_task(self._run_commits())

    async def _run_rounds(self) -> None:
        tick_s = self._settings.upload_interval_ms / 1000 / _TICKS_PER_INTERVAL
        self._next_round_ms = self._clock.monotonic_ms() + self._settings.upload_interval_ms
        while True:
            try:
                async with asyncio.timeout(min(1.0, tick_s)):
                    await self._round_wanted.wait()
            except TimeoutError:
                pass
            self._round_wanted.clear()
            if self._is_store_down():
                continue
            is_round = self._clock.monotonic_ms() >= self._next_round_ms or self._is_space_low() or self._is_much_new()
            if is_round:
                self._next_round_ms = self._clock.monotonic_ms() + self._settings.upload_interval_ms
                self._flushed_at_round = self._logs.wal.flushed_bytes_total
            is_done = await self.upload_round(is_everything=is_round)
            await self.release_ring()
            if not is_done:
                await asyncio.sleep(_RETRY_S)

    def _is_much_new(self) -> bool:
        """Under heavy load the interval is too long: memory would fill with what is not uploaded yet."""
        return self._logs.wal.flushed_bytes_total - self._flushed_at_round >= self._settings.upload_waiting_bytes

    def _is_space_low(self) -> bool:
        wal = self._logs.wal
        return self._logs.has_paused_producers or wal.room_bytes < wal.data_size // 2

    async def upload_round(self, *, is_everything: bool = True) -> bool:
        """Upload what waits: all of it, or only partitions with a whole object's worth. False if some failed."""
        waiting = await self._survey(1 if is_everything else self._settings.upload_object_bytes)
        parcels = pack(
            waiting,
            stream_bytes=self._settings.upload_stream_bytes,
            object_bytes=self._settings.upload_object_bytes,
            count_max=_PARTITIONS_PER_OBJECT,
        )
        for parcel in parcels:
            self._busy.update(parcel.partitions)
        async with asyncio.TaskGroup() as uploads:
            tasks = [uploads.create_task(self._upload_in_turn(parcel)) for parcel in parcels]
        if any(p.unuploaded_bytes >= self._settings.upload_object_bytes for each in parcels for p in each.partitions):
            # More than one object's worth was waiting: a backlog does not wait for the clock.
            self._round_wanted.set()
        return all(task.result() for task in tasks)

    async def _survey(self, size_min: int) -> list[Waiting[PartitionLog]]:
        waiting: list[Waiting[PartitionLog]] = []
        unknown: list[PartitionLog] = []
        for index, partition in enumerate(list(self._logs.partitions())):
            if index % _SURVEY_SLICE == _SURVEY_SLICE - 1:
                await asyncio.sleep(0)
            if partition.removed or partition in self._busy or partition in self._committing:
                continue
            size = partition.unuploaded_bytes
            if size and not self._commits.has_entry((partition.topic_id, partition.index)):
                unknown.append(partition)
            if size >= size_min and _upload_limit(partition) > partition.uploaded_end:
                waiting.append(Waiting(partition, size))
        await self._announce(unknown)
        return waiting

    async def _announce(self, partitions: Sequence[PartitionLog]) -> None:
        """Let everybody see that these have records, and that they are in a WAL."""
        claims = [
            self._commits.claim(p.topic_name, p.index, base_offset=p.uploaded_end, end_offset=p.uploaded_end)
            for p in partitions
            if not p.removed
        ]
        try:
            await self._commits.keep_in_wal(claims)
        except Concurrent:
            log.info("a partition changed hands before it was announced")

    async def _upload_in_turn(self, parcel: Parcel[PartitionLog]) -> bool:
        try:
            async with self._slots:
                return await self._upload(parcel, self._settings.upload_object_bytes)
        finally:
            self._busy.difference_update(parcel.partitions)

    async def _run_commits(self) -> None:
        while True:
            await self._commit_wanted.wait()
            self._commit_wanted.clear()
            await self._linger()
            for partition in list(self._committing):
                if partition.removed or partition.uploaded_end >= partition.end_offset:
                    del self._committing[partition]
            chosen = [p for p in self._committing if p not in self._busy and p.durable_end > p.uploaded_end]
            if chosen:
                await self._commit_together(chosen)
            elif self._committing:
                # Busy in a round, or not durable yet: look again soon.
                await asyncio.sleep(_LOOK_AGAIN_S)
            if self._committing:
                self._commit_wanted.set()

    async def _linger(self) -> None:
        """Wait for company, unless there is enough of it, or the last upload gave the others time to come."""
        if sum(p.unuploaded_bytes for p in self._committing) >= self._settings.commit_bytes:
            return
        waited_ms = self._clock.monotonic_ms() - self._first_wanted_ms
        if waited_ms < self._settings.commit_linger_ms:
            await asyncio.sleep((self._settings.commit_linger_ms - waited_ms) / 1000)

    async def _commit_together(self, chosen: Sequence[PartitionLog]) -> None:
        chosen = chosen[:_PARTITIONS_PER_OBJECT]
        kind = Kind.STREAM if len(chosen) == 1 else Kind.STREAM_SET
        self._busy.update(chosen)
        try:
            is_done = await self._upload(Parcel(kind, tuple(chosen)), self._settings.upload_object_bytes)
        finally:
            self._busy.difference_update(chosen)
        if not is_done:
            await asyncio.sleep(_RETRY_S)

    # -- one upload ----------------------------------------------------------------------------------------------

    async def _upload(self, parcel: Parcel[PartitionLog], bytes_max: int) -> bool:
        """True when the parcel is committed, or there was nothing to do; False when it has to be tried again."""
        started_ms = self._clock.monotonic_ms()
        pieces = await self._gather(parcel.partitions, bytes_max)
        if not pieces:
            return True
        self._metrics.tier_uploads_under_way += 1
        try:
            await self._carry_out(parcel.kind, pieces)
        except (StoreUnavailable, Concurrent, NotFound) as error:
            self._metrics.tier_upload_failures_total += 1
            log.warning("upload failed; its records stay in the WAL", partitions=len(pieces), reason=str(error))
            return False
        finally:
            self._metrics.tier_uploads_under_way -= 1
        self._metrics.tier_commit_ms.record(self._clock.monotonic_ms() - started_ms)
        return True

    async def _gather(self, partitions: Sequence[PartitionLog], bytes_max: int) -> list[_Piece]:
        pieces: list[_Piece] = []
        room = bytes_max
        for index, partition in enumerate(partitions):
            if index % _GATHER_SLICE == _GATHER_SLICE - 1:
                await asyncio.sleep(0)
            if room <= 0:
                break
            if partition.removed:
                continue
            start = max(partition.uploaded_end, partition.log_start)
            limit = _upload_limit(partition)
            if start >= limit:
                continue
            found = await partition.read_for_upload(start, room, limit)
            if found.stretches:
                base = max(start, read_header(found.stretches[0]).base_offset)
                pieces.append(_Piece(partition, found.stretches, base, found.end_offset))
                room -= sum(map(len, found.stretches))
        return pieces

    async def _carry_out(self, kind: Kind, pieces: Sequence[_Piece]) -> None:
        """One object, and as many commits as its segments need: each is whole, and each is told to the log at once."""
        target = await self._commits.new_object()
        size = self._commits.segments_max
        shares = [pieces[start : start + size] for start in range(0, len(pieces), size)]
        try:
            claims = [await self._prepare(target, share) for share in shares]
            builder = ObjectBuilder(kind)
            committed = 0
            try:
                runs = [[await self._add(builder, piece) for piece in share] for share in shares]
                await self._blobs.put(target.key, builder.chunks())
                self._note_footer(target, kind, runs)
                for share, share_claims, share_runs in zip(shares, claims, runs, strict=True):
                    await self._commit(target, builder, share, share_claims, share_runs)
                    committed += 1
                    for piece in share:
                        piece.partition.mark_uploaded(piece.end_offset)
                    await asyncio.sleep(0)
            except (StoreUnavailable, Concurrent):
                for share, share_claims in zip(shares[committed:], claims[committed:], strict=True):
                    await self._give_back(share, share_claims)
                raise
        finally:
            self._commits.give_up(target)
        self._metrics.tier_uploaded_objects_total += 1
        self._metrics.tier_uploaded_bytes_total += builder.body_size

    async def _prepare(self, target: NewObject, share: Sequence[_Piece]) -> list[Claim]:
        claims = [
            self._commits.claim(
                piece.partition.topic_name,
                piece.partition.index,
                base_offset=piece.base_offset,
                end_offset=piece.end_offset,
            )
            for piece in share
        ]
        return await self._commits.prepare(target, claims)

    def _note_footer(self, target: NewObject, kind: Kind, runs: Sequence[Sequence[list[Run]]]) -> None:
        every = tuple(run for share in runs for part in share for run in part)
        self._on_uploaded(target.key, Footer(kind=kind, runs=every))

    async def _add(self, builder: ObjectBuilder, piece: _Piece) -> list[Run]:
        """A stretch at a time: the CRCs of a whole object would keep the loop for milliseconds."""
        builder.begin(TopicId(piece.partition.topic_id), Partition(piece.partition.index))
        for stretch in piece.stretches:
            builder.extend_stretch(stretch)
            await asyncio.sleep(0)
        return builder.finish()

    async def _commit(
        self,
        target: NewObject,
        builder: ObjectBuilder,
        pieces: Sequence[_Piece],
        claims: Sequence[Claim],
        runs: Sequence[list[Run]],
    ) -> None:
        placed = [placed_at(claim, part) for claim, part in zip(claims, runs, strict=True)]
        segments = [
            segment_of(piece.partition, each, target.key, builder, bucket_end=piece.end_offset)
            for piece, each in zip(pieces, placed, strict=True)
        ]

        def describe(number: int, now_ms: int) -> Manifest:
            names = dict.fromkeys(piece.partition.topic_name for piece in pieces)
            return msgspec.structs.replace(
                self._commits.new_manifest(number, now_ms),
                topics=tuple(topic_entry(self._topic_of(name)) for name in names),
                added=tuple(segments),
            )

        await self._commits.commit(target, placed, builder.size, describe)

    async def _give_back(self, pieces: Sequence[_Piece], claims: Sequence[Claim]) -> None:
        alive = [claim for piece, claim in zip(pieces, claims, strict=True) if not piece.partition.removed]
        await self._commits.keep_in_wal(alive)

    # -- making room ---------------------------------------------------------------------------------------------

    async def release_ring(self) -> None:
        """Trim what is uploaded once it is worth it, and write a checkpoint now and then for `BrokerStates`.

        Only the rounds' lane does this: two checkpoints at a time would write over each other.
        """
        wal = self._logs.wal
        worth = wal.data_size // _TRIM_FRACTION
        # What is used at all is known at once; what of it is still needed takes a look at every partition.
        is_worth = wal.durable_lsn - wal.trim_lsn >= worth and self._logs.oldest_needed_lsn() - wal.trim_lsn >= worth
        now_ms = self._clock.monotonic_ms()
        if is_worth or self._is_space_low():
            await self._logs.trim()
        elif now_ms >= self._next_checkpoint_ms and wal.durable_lsn > self._checkpointed_lsn:
            await self._logs.checkpoint()
            self._checkpointed_lsn = wal.durable_lsn
        else:
            return
        self._next_checkpoint_ms = now_ms + self._settings.snapshot_interval_ms


def _upload_limit(partition: PartitionLog) -> int:
    """`object` records are uploaded to become readable; all others only once they are."""
    if partition.policy.durability is Durability.OBJECT:
        return partition.durable_end
    return partition.high_watermark
