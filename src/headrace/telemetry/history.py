"""The last day of a few numbers, so that charts need no Prometheus: a ring of samples, ten seconds apart, of bounded size.

Counters are kept as they count; whoever draws them takes differences. A node that was restarted counts from zero again, and
a difference across that is taken as what was counted since. Where it did not run, nothing is shown.

`dump` and `load` make bytes of it and back, in the format of docs/formats/history.md, so that charts survive a restart.
"""

import math
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted

MAGIC: Final = b"hrhist1\n"

STEP_MS: Final = 10_000
GAP_MS: Final = 3 * STEP_MS
"""Samples further apart than this have a time between them that nobody knows about."""
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
        numbers = _rates(times, values) if series.kind == "counter" else list(values)
        pairs = _with_gaps(list(zip(times, numbers, strict=True)))[1 if series.kind == "counter" else 0 :]
        stride = max(1, -(-len(pairs) // points_max))
        steps = [pairs[place : place + stride] for place in range(0, len(pairs), stride)]
        return Points(
            name=name,
            sentence=series.sentence,
            unit=series.unit,
            times_ms=[step[-1][0] for step in steps],
            values=[_mean([value for _, value in step]) for step in steps],
        )

    # -- at rest

    def dump(self) -> bytes:
        head = msgspec.json.encode({"names": self.names, "count": len(self._times)})
        columns = _big_endian(self._times) + b"".join(map(_big_endian, self._values.values()))
        body = struct.pack(">I", len(head)) + head + columns
        return MAGIC + struct.pack(">I", crc32c(body)) + body

    def load(self, data: bytes) -> None:
        """Take over what an earlier life has kept; `Corrupted` for what is none of it. Series that are not kept any more are
        left out, new ones have no past."""
        prefix = len(MAGIC) + 8
        if data[: len(MAGIC)] != MAGIC or len(data) < prefix:
            raise Corrupted("not a history of this version")
        crc, size = struct.unpack_from(">II", data, len(MAGIC))
        if crc != crc32c(data[len(MAGIC) + 4 :]):
            raise Corrupted("the history does not match its CRC")
        head = msgspec.json.decode(data[prefix : prefix + size], type=_Head)
        columns = [
            data[prefix + size + 8 * head.count * place :][: 8 * head.count] for place in range(len(head.names) + 1)
        ]
        times = _native("q", columns[0])
        values = {name: _native("d", column) for name, column in zip(head.names, columns[1:], strict=True)}
        self._cut(len(self._times))
        for place, time in enumerate(times):
            self._append(time, {name: column[place] for name, column in values.items()})


class _Head(msgspec.Struct, frozen=True):
    names: list[str]
    count: int


def _big_endian(column: "array[int] | array[float]") -> bytes:
    swapped = column[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()


def _native(kind: Literal["q", "d"], data: bytes) -> Any:  # Any: an array of the kind's numbers
    column = array(kind)
    column.frombytes(data)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _number(read: Callable[[], float]) -> float:
    value = float(read())
    return value if math.isfinite(value) else math.nan


def _rates(times: "array[int]", values: "array[float]") -> list[float]:
    """Per second, between each and the one before; of the first nobody knows."""
    rates = [math.nan] if times else []
    for place in range(1, len(times)):
        counted = values[place] - values[place - 1]
        if counted < 0:
            counted = values[place]
        rates.append(counted * 1000 / max(1, times[place] - times[place - 1]))
    return rates


def _with_gaps(pairs: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """With a point that says nothing where the node did not run."""
    whole: list[tuple[int, float]] = []
    for time, value in pairs:
        if whole and time - whole[-1][0] > GAP_MS:
            whole.append((whole[-1][0] + 1, math.nan))
        whole.append((time, value))
    return whole


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None
