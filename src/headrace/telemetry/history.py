"""The last day of a few numbers, so that charts need no Prometheus: a ring of samples, ten seconds apart, of bounded size.

Counters are kept as they count; whoever draws them takes differences. A node that was restarted counts from zero again, and
a difference across that is taken as what was counted since.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

STEP_MS: Final = 10_000
KEPT: Final = 8_640
"""A day of samples: eight bytes each for every series."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart."""

    name: str
    sentence: str
    kind: Literal["counter", "gauge"]
    unit: Literal["bytes", "records", "ms", "count", "dollars"]
    read: Callable[[], float]


class Points(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sentence: str
    unit: str
    """Per second where it is the rate of a counter."""
    times_ms: list[int]
    values: list[float | None]
    """None where the node did not run, or did not know."""


class History:
    def __init__(self, series: Sequence[Series], *, kept: int = KEPT) -> None:
        self._series = {each.name: each for each in series}
        self._kept = kept
        self._times = array("q")
        self._values = {each.name: array("d") for each in series}

    @property
    def names(self) -> list[str]:
        return list(self._series)

    def sample(self, now_ms: int) -> None:
        """A clock that was set back begins anew: a chart that runs backwards shows nothing true."""
        if self._times and now_ms <= self._times[-1]:
            self._cut(len(self._times))
        self._append(now_ms, {name: _number(each.read) for name, each in self._series.items()})

    def _append(self, now_ms: int, values: Mapping[str, float]) -> None:
        self._times.append(now_ms)
        for name, kept in self._values.items():
            kept.append(values.get(name, math.nan))
        if len(self._times) >= self._kept + self._kept // 10:
            # A tenth at a time: cutting the front of an array copies the rest.
            self._cut(len(self._times) - self._kept)

    def _cut(self, count: int) -> None:
        del self._times[:count]
        for kept in self._values.values():
            del kept[:count]

    def points(self, name: str, *, since_ms: int, points_max: int) -> Points:
        """The series since then, in at most `points_max` steps: rates of counters, means of gauges."""
        series = self._series[name]
        start = next((place for place, time in enumerate(self._times) if time >= since_ms), len(self._times))
        times, values = self._times[start:], self._values[name][start:]
        if series.kind == "counter":
            pairs = list(zip(times[1:], _rates(times, values), strict=True))
        else:
            pairs = list(zip(times, values, strict=True))
        stride = max(1, -(-len(pairs) // points_max))
        steps = [pairs[place : place + stride] for place in range(0, len(pairs), stride)]
        return Points(
            name=name,
            sentence=series.sentence,
            unit=series.unit,
            times_ms=[step[-1][0] for step in steps],
            values=[_mean([value for _, value in step]) for step in steps],
        )


def _number(read: Callable[[], float]) -> float:
    value = float(read())
    return value if math.isfinite(value) else math.nan


def _rates(times: "array[int]", values: "array[float]") -> list[float]:
    """Per second, between neighbours."""
    rates = []
    for place in range(1, len(times)):
        counted = values[place] - values[place - 1]
        if counted < 0:
            counted = values[place]
        rates.append(counted * 1000 / max(1, times[place] - times[place - 1]))
    return rates


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None
