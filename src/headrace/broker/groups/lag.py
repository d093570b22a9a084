"""How far groups are behind: now, and over the last hours."""

from array import array
from typing import Final

import msgspec

from headrace.broker.offsets import Offsets
from headrace.broker.slices import Turns
from headrace.broker.topics import Topics

SAMPLE_MS: Final = 60_000
_KEPT: Final = 180
"""Samples: three hours."""
_GROUPS_MAX: Final = 1_000
"""Groups with a trend: three megabytes of samples in all."""


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    time_ms: int
    lag: int


async def total_lag(topics: Topics, offsets: Offsets, group: str, turns: Turns) -> int:
    """Records between what is committed and the end, over all partitions that there are and that this broker leads."""
    total = 0
    async for chunk in turns.chunks(offsets.all_of(group).items()):
        for (topic, index), committed in chunk:
            if topics.has_partition(topic, index):
                partition = topics.partition(topic, index)
                total += 0 if partition.removed else max(0, partition.high_watermark - committed.offset)
    return total


class LagTrends:
    """A sample of each group's lag a minute, in memory only. Somebody calls `sample` that often."""

    def __init__(self, topics: Topics, offsets: Offsets) -> None:
        self._topics = topics
        self._offsets = offsets
        self._samples: dict[str, tuple[array[int], array[int]]] = {}

    async def sample(self, now_ms: int) -> None:
        turns = Turns()
        fresh: dict[str, tuple[array[int], array[int]]] = {}
        async for group in turns.over(list(self._offsets.groups())[:_GROUPS_MAX]):
            times, lags = self._samples.get(group) or (array("q"), array("q"))
            times.append(now_ms)
            lags.append(await total_lag(self._topics, self._offsets, group, turns))
            del times[:-_KEPT], lags[:-_KEPT]
            fresh[group] = (times, lags)
        # Groups that are gone are forgotten.
        self._samples = fresh

    def of(self, group: str) -> list[LagPoint]:
        times, lags = self._samples.get(group, ((), ()))
        return [LagPoint(time_ms=time_ms, lag=lag) for time_ms, lag in zip(times, lags, strict=True)]

    def at(self, group: str, time_ms: int) -> int | None:
        """The lag of the last sample that is no later; None where nobody looked yet."""
        times, lags = self._samples.get(group, ((), ()))
        return next((lag for then, lag in zip(reversed(times), reversed(lags), strict=True) if then <= time_ms), None)
