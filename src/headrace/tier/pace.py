"""How fast downloads for catching-up consumers may go while somebody writes.

*Unbounded*: nobody writes, or nobody suffers. *Paced*: while records come in and the event loop is held up, downloads
begin so far apart that they keep to a rate. The rate is halved in every window in which the loop was late, and grows by
a step in every other; beyond its ceiling, or when nobody writes any more, it is lifted. It never falls below a floor: a
loop that is late for other reasons must not keep consumers from catching up.

`Pace` decides, with time as an argument; `PacedDownloads` watches the loop and waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from headrace.clock import Clock
from headrace.tier.metrics import TierMetrics

WINDOW_MS: Final = 100
_LOOK_MS: Final = 5
"""Between two looks at the loop: often enough to meet a delay that one request in a hundred meets."""
_STEP: Final = 4 * 1024 * 1024
"""Bytes per second that a quiet window adds: from the floor to 200 MiB/s in four seconds."""
_CEILING: Final = 1024 * 1024 * 1024
"""Bytes per second beyond which there is nothing to pace."""


class Pace:
    def __init__(self, *, lag_ms_max: int, floor: int) -> None:
        """`floor` in bytes per second. A `lag_ms_max` of zero never paces."""
        self._lag_ms_max = lag_ms_max
        self._floor = floor
        self._free_ms = 0.0
        self._window_bytes = 0
        self._window_lag_ms = 0
        self._window_end_ms: int | None = None
        self.rate: float | None = None
        """Bytes per second; None while unbounded."""

    def begin(self, size: int, now_ms: int) -> float:
        """Milliseconds to wait before `size` bytes are asked for."""
        self._window_bytes += size
        if self.rate is None:
            return 0.0
        start_ms = max(float(now_ms), self._free_ms)
        self._free_ms = start_ms + size * 1000 / self.rate
        return start_ms - now_ms

    def look(self, lag_ms: int, now_ms: int, *, is_written: bool) -> None:
        """The loop was `lag_ms` late just now; `is_written` says whether records came in of late."""
        self._window_lag_ms = max(self._window_lag_ms, lag_ms)
        if self._window_end_ms is None:
            self._window_end_ms = now_ms + WINDOW_MS
        if now_ms < self._window_end_ms:
            return
        self._adjust(is_late=self._window_lag_ms > self._lag_ms_max > 0, is_written=is_written)
        self._window_end_ms = now_ms + WINDOW_MS
        self._window_bytes = self._window_lag_ms = 0

    def _adjust(self, *, is_late: bool, is_written: bool) -> None:
        if not is_written:
            self.rate = None
        elif is_late:
            so_far = self.rate if self.rate is not None else self._window_bytes * 1000 / WINDOW_MS
            self.rate = max(float(self._floor), so_far / 2)
        elif self.rate is not None:
            self.rate = self.rate + _STEP if self.rate < _CEILING else None
        if self.rate is None:
            self._free_ms = 0.0


class PacedDownloads:
    """A bounded number at once, and no faster than `pace` allows. The loop is watched only while there are any."""

    def __init__(
        self,
        pace: Pace,
        *,
        concurrency: int,
        clock: Clock,
        metrics: TierMetrics,
        written_bytes: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`written_bytes` counts what producers brought so far."""
        self._pace = pace
        self._slots = asyncio.Semaphore(concurrency)
        self._in_turn = asyncio.Lock()
        self._clock = clock
        self._metrics = metrics
        self._written_bytes = written_bytes
        self._sleep = sleep
        self._under_way = 0
        self._watch: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def slot(self, size: int) -> AsyncIterator[None]:
        """Wait for a place and for the pace, in order of asking."""
        self._under_way += 1
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._watch_loop())
        try:
            async with self._slots:
                # One at a time: whoever is behind waits by the rate of then, not by the one of now.
                async with self._in_turn:
                    wait_ms = self._pace.begin(size, self._clock.monotonic_ms())
                    if wait_ms > 0:
                        await self._sleep(wait_ms / 1000)
                yield
        finally:
            self._under_way -= 1

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _watch_loop(self) -> None:
        """Until nothing is under way and nothing is paced."""
        seen_bytes = self._written_bytes()
        written_ms: int | None = None
        while self._under_way or self._pace.rate is not None:
            before_ms = self._clock.monotonic_ms()
            await self._sleep(_LOOK_MS / 1000)
            now_ms = self._clock.monotonic_ms()
            if (written := self._written_bytes()) != seen_bytes:
                seen_bytes, written_ms = written, now_ms
            is_written = written_ms is not None and now_ms - written_ms <= WINDOW_MS
            self._pace.look(max(0, now_ms - before_ms - _LOOK_MS), now_ms, is_written=is_written)
            self._metrics.tier_read_pace_bytes = int(self._pace.rate or 0)
        self._watch = None
