"""Downloads for catching-up consumers: as fast as they can, unless somebody who writes has to wait for it."""

import asyncio

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.tier.metrics import TierMetrics
from headrace.tier.pace import WINDOW_MS, Pace, PacedDownloads

MIB = 1024 * 1024
FLOOR = 32 * MIB


class Bench:
    """A pace, and windows of time to show it."""

    def __init__(self, *, lag_ms_max: int = 3) -> None:
        self.now_ms = 0
        self.pace = Pace(lag_ms_max=lag_ms_max, floor=FLOOR)
        self.pace.look(0, self.now_ms, is_written=False)

    def window(self, lag_ms: int, *, taken: int = 0, is_written: bool = True) -> float | None:
        self.pace.begin(taken, self.now_ms)
        self.pace.look(lag_ms, self.now_ms + WINDOW_MS // 2, is_written=is_written)
        self.now_ms += WINDOW_MS
        self.pace.look(0, self.now_ms, is_written=is_written)
        return self.pace.rate


def test_nothing_is_paced_while_nobody_writes() -> None:
    bench = Bench()
    assert bench.window(50, taken=40 * MIB, is_written=False) is None
    assert bench.pace.begin(8 * MIB, bench.now_ms) == 0


def test_nothing_is_paced_while_the_loop_is_on_time() -> None:
    assert Bench().window(3, taken=40 * MIB) is None


def test_a_late_loop_halves_the_rate_down_to_the_floor() -> None:
    bench = Bench()
    rates = [bench.window(4, taken=40 * MIB if n == 0 else 0) for n in range(5)]
    assert rates == [200 * MIB, 100 * MIB, 50 * MIB, FLOOR, FLOOR]


def test_a_loop_on_time_again_raises_the_rate_step_by_step() -> None:
    bench = Bench()
    slow = bench.window(4, taken=40 * MIB)
    faster = bench.window(0)
    assert slow is not None
    assert faster is not None
    assert slow < faster < 2 * slow
    while bench.pace.rate is not None:
        assert bench.now_ms < 60_000, "the rate is never lifted"
        bench.window(0)


def test_the_rate_is_lifted_when_writing_ends() -> None:
    bench = Bench()
    bench.window(4, taken=40 * MIB)
    assert bench.window(4, is_written=False) is None


def test_a_limit_of_zero_never_paces() -> None:
    assert Bench(lag_ms_max=0).window(500, taken=40 * MIB) is None


def test_paced_downloads_begin_as_far_apart_as_the_rate_says() -> None:
    bench = Bench()
    bench.window(4)
    waits = [bench.pace.begin(8 * MIB, bench.now_ms) for _ in range(3)]
    assert waits == pytest.approx([0, 250, 500])


async def test_the_loop_is_watched_only_while_something_is_downloaded() -> None:
    clock = ManualClock()
    looks: list[float] = []

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        clock.advance(int(seconds * 1000))
        await turn_of_the_loop()

    downloads = PacedDownloads(
        Pace(lag_ms_max=3, floor=FLOOR),
        concurrency=1,
        clock=clock,
        metrics=TierMetrics(),
        written_bytes=lambda: 0,
        sleep=sleep,
    )
    async with downloads.slot(MIB):
        await turn_of_the_loop()
    for _ in range(5):
        await turn_of_the_loop()
    seen = len(looks)
    assert seen
    for _ in range(5):
        await turn_of_the_loop()
    assert len(looks) == seen
    await downloads.close()


async def test_downloads_slow_down_when_the_loop_is_late_beside_a_producer() -> None:
    clock, metrics, written = ManualClock(), TierMetrics(), 0
    late_ms = 10

    async def sleep(seconds: float) -> None:
        nonlocal written
        written += 1
        clock.advance(int(seconds * 1000) + late_ms)
        await turn_of_the_loop()

    downloads = PacedDownloads(
        Pace(lag_ms_max=3, floor=FLOOR),
        concurrency=2,
        clock=clock,
        metrics=metrics,
        written_bytes=lambda: written,
        sleep=sleep,
    )
    async with asyncio.timeout(60), downloads.slot(MIB):
        while not metrics.tier_read_pace_bytes:
            await turn_of_the_loop()
    assert metrics.tier_read_pace_bytes == FLOOR
    await downloads.close()
