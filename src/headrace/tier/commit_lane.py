"""Brings `durability=object` records to object storage while their producers wait.

Gathers for a few milliseconds, uploads what has come, and goes on gathering: a few such windows are under way at once, so a
record does not wait for an upload that began just before it came. Windows are committed one after the other, in the order in
which they were gathered, since each partition's segments follow each other. If one fails, those behind it fail too, and
everything is taken again from where the last good one ended.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headrace.clock import Clock
from headrace.errors import Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.telemetry.logging import get_logger
from headrace.tier.carrier import Carrier, Piece
from headrace.tier.format.object import Kind
from headrace.tier.settings import TierSettings

_PARTITIONS_PER_OBJECT: Final = 16_384
_LOOK_AGAIN_S: Final = 0.001
_RETRY_S: Final = (0.05, 0.2, 1.0)
"""Before the first, second and every further attempt without a success between them."""


log = get_logger(__name__)


class CommitLane:
    def __init__(
        self,
        settings: TierSettings,
        *,
        carrier: Carrier,
        clock: Clock,
        is_busy: Callable[[PartitionLog], bool],
        on_outcome: Callable[[Sequence[PartitionLog], bool], None],
        window_ms: Callable[[int], int] = lambda segment_count: 0,
    ) -> None:
        """`is_busy`: somebody else uploads it; `on_outcome` is told about every window; `window_ms` is how far apart windows of so many
        segments begin at least."""
        self._least_window_ms = window_ms
        self._settings = settings
        self._carrier = carrier
        self._clock = clock
        self._is_busy = is_busy
        self._on_outcome = on_outcome
        self._wanted: dict[PartitionLog, None] = {}
        self._under_way: Counter[PartitionLog] = Counter()
        self._gathered: dict[PartitionLog, int] = {}
        """Of partitions under way: where the newest window ends."""
        self._event = asyncio.Event()
        self._first_wanted_ms = -1
        """When the oldest record came that no window has; -1 when there is none."""
        self._newest: asyncio.Future[bool] | None = None
        self._has_failed = False
        self._failures = 0
        """Since the last window that was committed."""
        self._opened_ms = 0
        """When the newest window began."""
        self._window_ms = 0
        """How long windows took of late."""
        self._begin_anew()

    def want(self, partition: PartitionLog) -> None:
        """A producer waits for this partition to be in object storage."""
        self._wanted[partition] = None
        if self._first_wanted_ms < 0:
            self._first_wanted_ms = self._clock.monotonic_ms()
        self._event.set()

    def __contains__(self, partition: PartitionLog) -> bool:
        """Whether the partition is this lane's to upload."""
        return partition in self._wanted or partition in self._under_way

    async def run(self) -> None:
        while True:
            self._begin_anew()
            if self._wanted:
                self._event.set()
            # Ends when the last window behind a failed one has given up: only then is it clear where to go on.
            async with asyncio.TaskGroup() as windows:
                while not self._has_failed:
                    await self._event.wait()
                    self._event.clear()
                    await self._open_window(windows)
            await asyncio.sleep(_RETRY_S[min(self._failures, len(_RETRY_S) - 1)])
            self._failures += 1
            self._event.set()

    def _begin_anew(self) -> None:
        """No window is under way: none has been, or all of them have ended."""
        self._newest, self._has_failed = None, False
        self._slots = asyncio.Semaphore(self._settings.commit_concurrency)
        self._under_way.clear()
        self._gathered.clear()

    async def _open_window(self, windows: asyncio.TaskGroup) -> None:
        await self._linger()
        await self._slots.acquire()
        pieces: list[Piece] = []
        try:
            pieces = await self._gather()
        finally:
            if not pieces:
                self._slots.release()
        if pieces:
            previous, self._newest = self._newest, asyncio.get_running_loop().create_future()
            self._opened_ms = self._clock.monotonic_ms()
            windows.create_task(self._carry(pieces, previous, self._newest))
        await self._look_ahead(has_gathered=bool(pieces))

    async def _look_ahead(self, *, has_gathered: bool) -> None:
        """Whatever the window could not take is next: busy in a round, not durable yet, or too much for one."""
        if not any(self._is_ungathered(partition) for partition in self._wanted):
            self._first_wanted_ms = -1
            return
        self._event.set()
        if has_gathered:
            self._first_wanted_ms = self._clock.monotonic_ms()
        else:
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _linger(self) -> None:
        """Wait for company, unless there is enough of it.

        Windows end in order, often two at a time. Opened as evenly as they take, none begins right behind another and is
        nearly empty while the next record waits for the one after.
        """
        if sum(p.readable_bytes(self._start_of(p), p.end_offset) for p in self._wanted) >= self._settings.commit_bytes:
            return
        due_ms = self._first_wanted_ms + self._settings.commit_linger_ms
        if self._under_way:
            due_ms = max(due_ms, self._opened_ms + self._window_ms // self._settings.commit_concurrency)
        due_ms = max(due_ms, self._opened_ms + self._least_window_ms(len(self._wanted)))
        wait_ms = due_ms - self._clock.monotonic_ms()
        if self._first_wanted_ms >= 0 and wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    async def _gather(self) -> list[Piece]:
        if self._has_failed:
            return []
        try:
            await self._carrier.settle()
        except Unavailable as error:
            log.warning("commits wait for the metastore", reason=str(error))
            return []
        self._forget_settled(list(self._wanted))
        starts = {
            partition: self._start_of(partition)
            for partition in self._wanted
            if not self._is_busy(partition) and partition.durable_end > self._start_of(partition)
        }
        chosen = list(starts)[:_PARTITIONS_PER_OBJECT]
        pieces = await self._carrier.gather(chosen, self._settings.upload_object_bytes, starts)
        for piece in pieces:
            self._under_way[piece.partition] += 1
            self._gathered[piece.partition] = piece.end_offset
        return pieces

    async def _carry(
        self, pieces: Sequence[Piece], previous: asyncio.Future[bool] | None, done: asyncio.Future[bool]
    ) -> None:
        kind = Kind.STREAM if len(pieces) == 1 else Kind.STREAM_SET
        partitions = [piece.partition for piece in pieces]
        is_done = False
        opened_ms = self._opened_ms
        try:
            is_done = await self._carrier.carry(kind, pieces, previous=previous)
            self._window_ms = (self._window_ms + self._clock.monotonic_ms() - opened_ms) // 2
            self._failures = 0 if is_done else self._failures
        finally:
            self._has_failed |= not is_done
            if not done.done():  # Cancelled with the window behind, when the lane is stopped.
                done.set_result(is_done)
            self._slots.release()
            self._under_way -= Counter(partitions)
            self._forget_settled(partitions)
            self._on_outcome(partitions, is_done)
            if self._has_failed:
                self._event.set()

    def _forget_settled(self, partitions: Sequence[PartitionLog]) -> None:
        for partition in partitions:
            if partition not in self._under_way:
                self._gathered.pop(partition, None)
            if not _is_awaited(partition):
                self._wanted.pop(partition, None)

    def _start_of(self, partition: PartitionLog) -> int:
        """The first offset that no window has."""
        return max(self._gathered.get(partition, 0), partition.uploaded_end, partition.log_start)

    def _is_ungathered(self, partition: PartitionLog) -> bool:
        return _is_awaited(partition) and self._start_of(partition) < partition.end_offset


def _is_awaited(partition: PartitionLog) -> bool:
    """Whether a producer may be waiting for an upload. Not any more once the topic went over to `wal`."""
    is_object = partition.policy.durability is Durability.OBJECT
    return is_object and not partition.removed and partition.uploaded_end < partition.end_offset
