"""Line and bar charts as SVG text: enough for a report, nothing to install, readable without scripts. Pure."""

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 28, 36
_COLOURS: Final = ("#1f6feb", "#d1495b", "#2e933c", "#b8860b", "#7b4ea3", "#008b8b")
_TICKS: Final = 4
_LABEL_CHARACTERS_MAX: Final = 36


class Series(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    values: list[float | None]
    """One for every label; None leaves a gap."""


def line_chart(title: str, labels: Sequence[str], series: Sequence[Series], *, unit: str = "") -> str:
    top = _nice(max((value for one in series for value in one.values if value is not None), default=1.0))
    parts = [_frame(title, top, unit), _time_axis(labels)]
    for index, one in enumerate(series):
        colour = _COLOURS[index % len(_COLOURS)]
        parts += [_polyline(points, colour) for points in _segments(one.values, len(labels), top)]
        parts.append(_legend(index, one.name, colour))
    return _svg(parts)


def bar_chart(title: str, labels: Sequence[str], values: Sequence[float], *, unit: str = "") -> str:
    """Horizontal bars, one per label, longest first as the caller sorted them."""
    top = max([*values, 1e-9])
    row = 22
    parts = [f'<text x="8" y="18" class="t">{escape(title)}</text>']
    for index, (label, value) in enumerate(zip(labels, values, strict=True)):
        y = 30 + index * row
        length = (WIDTH - 330) * value / top
        parts.append(f'<text x="240" y="{y + 13}" class="a" text-anchor="end">{escape(_shortened(label))}</text>')
        parts.append(f'<rect x="248" y="{y}" width="{length:.1f}" height="16" fill="{_COLOURS[0]}"/>')
        parts.append(f'<text x="{254 + length:.1f}" y="{y + 13}" class="a">{escape(_quantity(value, unit))}</text>')
    return _svg(parts, height=40 + row * len(labels))


def heat_map(title: str, labels: Sequence[str], rows: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A cell for every label and row, the darker the more; `counts` has a sequence of rows for every label."""
    most = max((count for column in counts for count in column), default=0)
    parts = [f'<text x="8" y="18" class="t">{escape(title)}</text>', _time_axis(labels)]
    height = (HEIGHT - _TOP - _BOTTOM) / max(1, len(rows))
    width = (WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    for row, name in enumerate(rows):
        y = HEIGHT - _BOTTOM - (row + 1) * height
        middle = y + height / 2 + 4
        parts.append(f'<text x="{_LEFT - 6}" y="{middle:.1f}" class="a" text-anchor="end">{escape(name)}</text>')
        for column, cells in enumerate(counts):
            if cells[row]:
                # By the square root, or a single busy cell would hide all others.
                shade = (cells[row] / most) ** 0.5
                parts.append(
                    f'<rect x="{_LEFT + column * width:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" '
                    f'fill="{_COLOURS[0]}" fill-opacity="{shade:.2f}"/>'
                )
    return _svg(parts)


def _segments(values: Sequence[float | None], count: int, top: float) -> list[list[tuple[float, float]]]:
    segments: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            segments.append([])
            continue
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (index / max(1, count - 1))
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(1.0, value / top)
        segments[-1].append((x, y))
    return [segment for segment in segments if segment]


def _polyline(points: Sequence[tuple[float, float]], colour: str) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _frame(title: str, top: float, unit: str) -> str:
    lines = [f'<text x="8" y="18" class="t">{escape(title)}</text>']
    for tick in range(_TICKS + 1):
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * tick / _TICKS
        lines.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="g"/>')
        label = escape(_quantity(top * tick / _TICKS, unit))
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="a" text-anchor="end">{label}</text>')
    return "".join(lines)


def _time_axis(labels: Sequence[str]) -> str:
    if not labels:
        return ""
    places = sorted({0, len(labels) // 3, 2 * len(labels) // 3, len(labels) - 1})
    texts = []
    for place in places:
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (place / max(1, len(labels) - 1))
        anchor = "start" if place == 0 else "end" if place == len(labels) - 1 else "middle"
        texts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 12}" class="a" text-anchor="{anchor}">{escape(labels[place])}</text>'
        )
    return "".join(texts)


def _legend(index: int, name: str, colour: str) -> str:
    x = WIDTH - _RIGHT - 110 * (index + 1)
    return (
        f'<rect x="{x}" y="9" width="10" height="10" fill="{colour}"/>'
        f'<text x="{x + 14}" y="18" class="a">{escape(name[:14])}</text>'
    )


def _svg(parts: Sequence[str], *, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _nice(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _shortened(label: str) -> str:
    """The end of a name says most: the action, not the modules it is in."""
    return label if len(label) <= _LABEL_CHARACTERS_MAX else "…" + label[1 - _LABEL_CHARACTERS_MAX :]


def _quantity(value: float, unit: str) -> str:
    """With its unit, as people say it: 1500 ms are 1.5 s, not 1.5 kms."""
    if unit == "ms" and value >= 1_000:
        return f"{_number(value / 1_000)} s"
    return f"{_number(value)} {unit}".rstrip() if unit in ("ms", "s") else f"{_number(value)}{unit}"


def _number(value: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
