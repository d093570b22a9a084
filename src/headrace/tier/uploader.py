"""Moves durable records from the WAL to object storage.

Two lanes, each with its own pace. *Rounds* take everything that waits, once per interval, and busy partitions sooner;
they serve `wal` topics. The *commit lane* serves `durability=object` topics, whose producers wait. A partition is in one
of them at a time, and in one upload of a round, so its segments follow each other.

This decides what goes when; the carrier takes it there. What it brings back undone is taken again.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from headrace.clock import Clock
from headrace.errors import Concurrent, NotFound, NotLeader, Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger
from headrace.tier.carrier import Carrier, upload_limit
from headrace.tier.commit_lane import CommitLane
from headrace.tier.commits import Commits
from headrace.tier.packing import Parcel, Waiting, pack, pack_full
from headrace.tier.settings import TierSettings
from headrace.tier.waking import woken

_TICKS_PER_INTERVAL: Final = 10
_LOOK_S: Final = 0.05
_SURVEY_SLICE: Final = 512
"""Partitions looked at before others get the loop: about a millisecond."""
_PARTITIONS_PER_OBJECT: Final = 16_384
"""Keeps an object's index below 1.2 MB."""
_RETRY_MS: Final = 1000

log = get_logger(__name__)


class Take(Enum):
    """What a round takes of all that waits."""

    EVERYTHING = "everything"
    FULL_OBJECTS = "full objects"
    """What fills an object, alone or with others: there is much, and more is coming."""
    BUSY_PARTITIONS = "busy partitions"
    """Only those that have a whole object's worth."""


class Uploader:
    def __init__(
        self,
        settings: TierSettings,
        *,
        carrier: Carrier,
        commits: Commits,
        logs: LogStore,
        clock: Clock,
        is_store_down: Callable[[], bool] = lambda: False,
        window_ms: Callable[[int], int] = lambda segment_count: 0,
    ) -> None:
        """`window_ms` as for the `CommitLane`."""
        self._settings = settings
        self._carrier = carrier
        self._commits = commits
        self._logs = logs
        self._clock = clock
        self._is_store_down = is_store_down
        self._busy: set[PartitionLog] = set()
        self._commit_lane = CommitLane(
            settings,
            carrier=carrier,
            clock=clock,
            is_busy=self._busy.__contains__,
            on_outcome=self._note_outcome,
            window_ms=window_ms,
        )
        self.want_commit = self._commit_lane.want
        """A producer waits for a partition to be in object storage."""
        self._round_wanted = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.upload_concurrency)
        self._next_round_ms = 0
        self._flushed_at_round = 0
        self._refused: dict[PartitionLog, int] = {}
        """Partitions whose last upload failed, and when to try again. Others need not wait for them."""
        self.on_round: Callable[[], None] = lambda: None
        """Told after every round: there may be something to trim."""

    # -- what the log tells us -----------------------------------------------------------------------------------

    def want_space(self) -> None:
        """The ring runs low: upload now, whatever the clock says."""
        self._next_round_ms = 0
        self._round_wanted.set()

    def is_refused(self, partition: PartitionLog) -> bool:
        """Whether object storage would not have this partition's records when they were last brought."""
        return partition in self._refused

    # -- the lanes -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._run_rounds())
            lanes.create_task(self._commit_lane.run())

    async def _run_rounds(self) -> None:
        tick_s = min(1.0, self._settings.upload_interval_ms / 1000 / _TICKS_PER_INTERVAL)
        self._next_round_ms = self._clock.monotonic_ms() + self._settings.upload_interval_ms
        while True:
            await self._tick(tick_s)
            if self._is_store_down():
                await woken(self._round_wanted, within_s=tick_s)
                continue
            try:
                await self.upload_round(self._begin_round(), is_resting_counted=False)
            except Unavailable as error:
                log.warning("uploads wait for the metastore", reason=str(error))
                continue
            self.on_round()

    def _begin_round(self) -> Take:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_round_ms or self._is_space_low():
            self._next_round_ms = now_ms + self._settings.upload_interval_ms
            take = Take.EVERYTHING
        elif self._is_much_new():
            # The clock goes on: what does not fill an object waits for it, at most.
            take = Take.FULL_OBJECTS
        else:
            return Take.BUSY_PARTITIONS
        self._flushed_at_round = self._logs.wal.flushed_bytes_total
        return take

    async def _tick(self, seconds: float) -> None:
        """Cut short when somebody asks or much has come in: at full speed a second brings a gigabyte."""
        for _ in range(max(1, round(seconds / _LOOK_S))):
            if self._is_much_new() or await woken(self._round_wanted, within_s=min(_LOOK_S, seconds)):
                return

    def _is_much_new(self) -> bool:
        """Under heavy load the interval is too long: memory would fill with what is not uploaded yet."""
        return self._logs.wal.flushed_bytes_total - self._flushed_at_round >= self._settings.upload_waiting_bytes

    def _is_space_low(self) -> bool:
        wal = self._logs.wal
        return self._logs.has_paused_producers or wal.room_bytes < wal.data_size // 2

    async def upload_round(self, take: Take = Take.EVERYTHING, *, is_resting_counted: bool = True) -> bool:
        """Upload what waits, or so much of it. False if some failed.

        Those that failed a moment ago are tried again only with `is_resting_counted`.
        """
        await self._carrier.settle()
        found = await self._survey(self._settings.upload_object_bytes if take is Take.BUSY_PARTITIONS else 1)
        parcels = self._pack(
            take,
            # Looked at again: the commit lane may have taken some while others were surveyed.
            [
                each
                for each in found
                if self._is_free(each.partition) and (is_resting_counted or not self._is_resting(each.partition))
            ],
        )
        for parcel in parcels:
            self._busy.update(parcel.partitions)
        try:
            async with asyncio.TaskGroup() as uploads:
                tasks = [uploads.create_task(self._upload_in_turn(parcel)) for parcel in parcels]
        finally:
            # Also of those that were cancelled before they began.
            self._busy.difference_update(partition for parcel in parcels for partition in parcel.partitions)
        if any(p.unuploaded_bytes >= self._settings.upload_object_bytes for each in parcels for p in each.partitions):
            # More than one object's worth was waiting: a backlog does not wait for the clock.
            self._round_wanted.set()
        return all(task.result() for task in tasks)

    def _pack(self, take: Take, waiting: Sequence[Waiting[PartitionLog]]) -> list[Parcel[PartitionLog]]:
        stream_bytes, object_bytes = self._settings.upload_stream_bytes, self._settings.upload_object_bytes
        if take is not Take.FULL_OBJECTS:
            return pack(waiting, stream_bytes=stream_bytes, object_bytes=object_bytes, count_max=_PARTITIONS_PER_OBJECT)
        packed = pack_full(
            waiting,
            stream_bytes=stream_bytes,
            # Where less than that is much, it is to go as well.
            object_bytes=min(object_bytes, self._settings.upload_waiting_bytes),
            count_max=_PARTITIONS_PER_OBJECT,
        )
        # Counts leftovers as new bytes: the next round looks at them.
        self._flushed_at_round -= packed.left_bytes
        return packed.parcels

    async def _survey(self, size_min: int) -> list[Waiting[PartitionLog]]:
        waiting: list[Waiting[PartitionLog]] = []
        unknown: list[PartitionLog] = []
        for index, partition in enumerate(list(self._logs.partitions())):
            if index % _SURVEY_SLICE == _SURVEY_SLICE - 1:
                await asyncio.sleep(0)
            if not self._is_free(partition):
                continue
            size = partition.unuploaded_bytes
            if size and not self._commits.has_entry((partition.topic_id, partition.index)):
                unknown.append(partition)
            if size >= size_min and upload_limit(partition) > partition.uploaded_end:
                waiting.append(Waiting(partition, size))
        await self._announce(unknown)
        return waiting

    def _is_free(self, partition: PartitionLog) -> bool:
        return not (partition.removed or partition in self._busy or partition in self._commit_lane)

    async def _announce(self, partitions: Sequence[PartitionLog]) -> None:
        """Let everybody see that these have records, and that they are in a WAL."""
        try:
            await self._commits.keep_in_wal(
                [
                    self._commits.claim(
                        p.topic_id,
                        p.index,
                        base_offset=p.uploaded_end,
                        end_offset=p.uploaded_end,
                        leader_epoch=p.leader_epoch,
                    )
                    for p in partitions
                    if not p.removed
                ]
            )
        except (Concurrent, NotFound, NotLeader):
            log.info("a partition changed hands, or was deleted, before it was announced")

    async def _upload_in_turn(self, parcel: Parcel[PartitionLog]) -> bool:
        is_done = False
        try:
            async with self._slots:
                pieces = await self._carrier.gather(parcel.partitions, self._settings.upload_object_bytes)
                is_done = await self._carrier.carry(parcel.kind, pieces)
        finally:
            self._busy.difference_update(parcel.partitions)
            self._note_outcome(parcel.partitions, is_done)
        return is_done

    def _note_outcome(self, partitions: Sequence[PartitionLog], is_done: bool) -> None:
        for partition in partitions:
            self._refused.pop(partition, None)
        for removed in [each for each in self._refused if each.removed]:
            del self._refused[removed]
        if not is_done:
            self._refused.update(dict.fromkeys(partitions, self._clock.monotonic_ms() + _RETRY_MS))

    def _is_resting(self, partition: PartitionLog) -> bool:
        return self._refused.get(partition, 0) > self._clock.monotonic_ms()
