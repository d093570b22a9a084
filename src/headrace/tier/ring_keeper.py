"""Keeps the ring from filling: trims what is uploaded, and spills the oldest part when the object store will not have it.

A quiet partition does not hold the ring up, since low space makes the uploader take everything. What holds it up then is a
store that is down, one that refuses some partition's records, or one that hangs. Only this task writes checkpoints and
trims, so no two of them are under way at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.clock import Clock
from headrace.log.partition import PartitionLog
from headrace.log.spill.spiller import Spiller
from headrace.log.store import LogStore
from headrace.tier.metrics import TierMetrics
from headrace.tier.settings import TierSettings
from headrace.tier.waking import woken

_TRIM_FRACTION: Final = 16
"""Trimming writes a checkpoint of every partition, so it waits until this part of the ring can be gained."""
_SPILL_FRACTION: Final = 4
"""Spilling begins when less than this part of the ring is free: time enough to do it before producers have to pause."""
_STALLED_MS: Final = 10_000
"""A store that takes nothing of what the ring needs most for so long is as good as down."""
_LOOK_AGAIN_S: Final = 1.0


class RingKeeper:
    def __init__(
        self,
        settings: TierSettings,
        *,
        logs: LogStore,
        clock: Clock,
        metrics: TierMetrics,
        is_store_down: Callable[[], bool],
        is_refused: Callable[[PartitionLog], bool],
    ) -> None:
        self._settings = settings
        self._logs = logs
        self._clock = clock
        self._metrics = metrics
        self._is_store_down = is_store_down
        self._is_refused = is_refused
        self._spiller = Spiller(logs)
        self._wanted = asyncio.Event()
        self._next_checkpoint_ms = clock.monotonic_ms() + settings.snapshot_interval_ms
        self._checkpointed_lsn = 0
        self._oldest_lsn = -1
        self._oldest_since_ms = 0

    def wake(self) -> None:
        """Something was uploaded, or room is wanted."""
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await woken(self._wanted, within_s=_LOOK_AGAIN_S)
            await self.keep()

    async def keep(self) -> None:
        await self._trim()
        await self._spill()
        if len(self._logs.spill):
            await self._spiller.release()
        self._metrics.tier_spill_bytes = self._logs.spill.used_bytes
        self._metrics.tier_spilled_bytes_total = self._spiller.spilled_bytes_total

    async def _trim(self) -> None:
        """Trim what is uploaded once it is worth it, and write a checkpoint now and then for `BrokerStates`."""
        logs, wal = self._logs, self._logs.wal
        now_ms = self._clock.monotonic_ms()
        worth = wal.data_size // _TRIM_FRACTION
        # What is used at all is known at once; what of it is still needed takes a look at every partition.
        if wal.durable_lsn - wal.trim_lsn >= worth and await self._gain() >= (1 if self._is_wanted else worth):
            await logs.trim()
        elif now_ms >= self._next_checkpoint_ms and wal.durable_lsn > self._checkpointed_lsn:
            await logs.checkpoint()
            self._checkpointed_lsn = wal.durable_lsn
        else:
            return
        self._next_checkpoint_ms = now_ms + self._settings.snapshot_interval_ms

    async def _gain(self) -> int:
        oldest = await self._logs.oldest_needed_lsn()
        if oldest != self._oldest_lsn:
            self._oldest_lsn, self._oldest_since_ms = oldest, self._clock.monotonic_ms()
        return self._logs.wal.group_start(oldest) - self._logs.wal.trim_lsn

    @property
    def _is_wanted(self) -> bool:
        """Whether every bit of room counts."""
        return self._logs.has_paused_producers or self._logs.wal.room_bytes < self._logs.wal.data_size // 2

    async def _spill(self) -> None:
        """Copy what object storage will not have out of the ring's way; nothing, where it takes everything."""
        wal = self._logs.wal
        part = wal.data_size // _SPILL_FRACTION
        # Producers that pause may want more room than the usual mark leaves them.
        low, goal = (2 * part, 2 * part) if self._logs.has_paused_producers else (part, part + part // 4)
        if wal.room_bytes >= low:
            return
        target = wal.trim_lsn + goal - wal.room_bytes
        if not self._is_stalled():
            # What will be uploaded any moment is not worth a copy.
            target = min(target, await self._logs.oldest_needed_lsn(besides=self._is_refused))
        while self._logs.spill.end_lsn < target and await self._spiller.spill(target):
            pass
        await self._logs.trim()

    def _is_stalled(self) -> bool:
        return self._is_store_down() or self._clock.monotonic_ms() - self._oldest_since_ms >= _STALLED_MS
