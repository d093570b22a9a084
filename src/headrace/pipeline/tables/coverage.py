"""Which offsets of which partitions a table holds. Kept by topic id: a re-created topic starts from nothing.

Ranges are half-open, sorted, and never touch each other, so the same coverage always has the same text. It travels as one
table property, committed together with the rows it speaks of.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec


class PartitionId(NamedTuple):
    topic_id: str
    partition: int


class Range(NamedTuple):
    start: int
    end: int


class Coverage:
    """A set of offsets. A value: operations give a new one."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[PartitionId, Iterable[Range]] | None = None) -> None:
        merged = {key: _merge(parts) for key, parts in (ranges or {}).items()}
        self._ranges = {key: parts for key, parts in sorted(merged.items()) if parts}

    @classmethod
    def parse(cls, text: str | None) -> "Coverage":
        """From `{"<topic id>": {"0": "0-100,150-200"}}`."""
        if not text:
            return cls()
        document = msgspec.json.decode(text, type=dict[str, dict[str, str]])
        return cls(
            {
                PartitionId(topic_id, int(partition)): [_parse_range(part) for part in ranges.split(",")]
                for topic_id, partitions in document.items()
                for partition, ranges in partitions.items()
            }
        )

    def format(self) -> str:
        document: dict[str, dict[str, str]] = {}
        for key, parts in self._ranges.items():
            text = ",".join(f"{part.start}-{part.end}" for part in parts)
            document.setdefault(key.topic_id, {})[str(key.partition)] = text
        return msgspec.json.encode(document).decode()

    @property
    def ranges(self) -> Mapping[PartitionId, tuple[Range, ...]]:
        return self._ranges

    def plus(self, other: "Coverage") -> "Coverage":
        keys = self._ranges.keys() | other._ranges.keys()
        return Coverage({key: (*self._ranges.get(key, ()), *other._ranges.get(key, ())) for key in keys})

    def minus(self, other: "Coverage") -> "Coverage":
        return Coverage({key: _subtract(parts, other._ranges.get(key, ())) for key, parts in self._ranges.items()})

    def overlaps(self, other: "Coverage") -> bool:
        return self.minus(other) != self

    def count(self) -> int:
        return sum(part.end - part.start for parts in self._ranges.values() for part in parts)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coverage) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self.format())

    def __repr__(self) -> str:
        return f"Coverage({self.format()})"


def _merge(parts: Iterable[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for part in sorted(part for part in parts if part.start < part.end):
        if merged and part.start <= merged[-1].end:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, part.end))
        else:
            merged.append(part)
    return tuple(merged)


def _subtract(parts: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    remaining = list(parts)
    for other in others:
        cut: list[Range] = []
        for part in remaining:
            cut += [Range(part.start, min(part.end, other.start)), Range(max(part.start, other.end), part.end)]
        remaining = [part for part in cut if part.start < part.end]
    return remaining


def _parse_range(text: str) -> Range:
    start, _, end = text.partition("-")
    return Range(int(start), int(end))
