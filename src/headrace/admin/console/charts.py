"""Charts as SVG, drawn here: they are there without script, and print. The script only adds what is under the pointer."""

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec
from markupsafe import Markup

from headrace.admin.console import formats
from headrace.telemetry.history import Points

_WIDTH: Final = 1000
_HEIGHT: Final = 100
_TICKS: Final = 3


def chart(series: Sequence[Points], *, title: str, per_second: bool, from_ms: int, to_ms: int) -> Markup:
    """One chart with a line per series. Gaps stay gaps: nobody knows what was there.

    The drawing is stretched to its place, so text stands beside it and not in it.
    """
    unit, suffix = series[0].unit, "/s" if per_second else ""
    highest = _nice(max((value for each in series for value in each.values if value is not None), default=0), unit)
    lines = "".join(
        _line(each, number, highest, from_ms, to_ms, is_filled=len(series) == 1) for number, each in enumerate(series)
    )
    legend = "".join(
        f'<span class="legend line{number}">{escape(each.sentence) if len(series) > 1 else "now"} '
        f"<b>{escape(_last(each, unit) + suffix)}</b></span>"
        for number, each in enumerate(series)
    )
    levels = "".join(
        f"<span>{escape(formats.amount(highest * tick / _TICKS, unit) + suffix) if tick else '0'}</span>"
        for tick in range(_TICKS, -1, -1)
    )
    times = "".join(f"<span>{_clock(from_ms + (to_ms - from_ms) * part // 4)}</span>" for part in range(5))
    return Markup(
        f'<figure class="chart" data-chart="{escape(_data(series, unit, suffix, from_ms, to_ms))}">'
        f"<figcaption><strong>{escape(title)}</strong>{legend}</figcaption>"
        f'<div class="levels" aria-hidden="true">{levels}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}" preserveAspectRatio="none">'
        f'{_grid()}{lines}</svg><div class="times" aria-hidden="true">{times}</div></figure>'
    )


def _data(series: Sequence[Points], unit: str, suffix: str, from_ms: int, to_ms: int) -> str:
    """For the script: what stands under the pointer, in words."""
    rows = [
        {
            "name": each.sentence,
            "times": each.times_ms,
            "texts": [None if value is None else formats.amount(value, unit) + suffix for value in each.values],
        }
        for each in series
    ]
    return msgspec.json.encode({"from": from_ms, "to": to_ms, "series": rows}).decode()


def _clock(time_ms: int) -> str:
    return formats.moment(time_ms)[11:16]


def _last(points: Points, unit: str) -> str:
    known = [value for value in points.values if value is not None]
    return formats.amount(known[-1], unit) if known else "–"


def _nice(highest: float, unit: str) -> float:
    """A round number at or above it, in the unit's own powers."""
    if highest <= 0:
        return {"bytes": 1024.0, "ms": 1.0, "dollars": 0.01}.get(unit, 1.0)
    base = 1.0
    if unit == "bytes":
        while base * 1024 <= highest:
            base *= 1024
    else:
        while base * 10 <= highest:
            base *= 10
        while base > highest:
            base /= 10
    for factor in (1, 2, 3, 5, 10, 20, 50, 100, 200, 300, 500, 1000, 1024):
        if factor * base >= highest:
            return factor * base
    return highest


def _x(time_ms: int, from_ms: int, to_ms: int) -> float:
    return _WIDTH * (time_ms - from_ms) / max(1, to_ms - from_ms)


def _y(value: float, highest: float) -> float:
    return _HEIGHT * (1 - min(value, highest) / highest)


def _grid() -> str:
    heights = [_HEIGHT * tick / _TICKS for tick in range(_TICKS + 1)]
    return "".join(f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>' for y in heights)


def _line(points: Points, number: int, highest: float, from_ms: int, to_ms: int, *, is_filled: bool) -> str:
    runs: list[list[tuple[float, float]]] = [[]]
    for time, value in zip(points.times_ms, points.values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_x(time, from_ms, to_ms), _y(value, highest)))
    parts = []
    for run in filter(None, runs):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        if is_filled:
            first, last = run[0][0], run[-1][0]
            parts.append(f'<path class="area line{number}" d="M{first:.1f} {_HEIGHT}L{path}L{last:.1f} {_HEIGHT}Z"/>')
        parts.append(f'<path class="line line{number}" d="M{path}"/>')
    return "".join(parts)
