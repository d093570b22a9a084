"""Spark's progress reports as the numbers people ask for. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.pipeline.source.offsets import Position


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    batch: int
    rows: int
    duration_ms: int
    lag: dict[str, int]

    @property
    def rows_per_second(self) -> float:
        return self.rows / (self.duration_ms / 1000) if self.duration_ms else 0.0


# Spark's report is JSON of many shapes; only these members are looked at.
def read_progress(report: Mapping[str, Any]) -> Progress:
    source = report["sources"][0]
    return Progress(
        batch=report["batchId"],
        rows=report["numInputRows"],
        duration_ms=report["durationMs"].get("triggerExecution", 0),
        lag=_lag(_position(source.get("endOffset")), _position(source.get("latestOffset"))),
    )


def _lag(reached: Position | None, newest: Position | None) -> dict[str, int]:
    """Offsets between what was read and what is there, for partitions where there are any."""
    if reached is None or newest is None:
        return {}
    behind = {place: offset - reached.offsets.get(place, 0) for place, offset in newest.offsets.items()}
    return {str(place): count for place, count in sorted(behind.items()) if count > 0}


def _position(document: Any) -> Position | None:
    """A batch that is repeated after a restart has no latest offset yet: Spark then reports the text `null`."""
    decoded = msgspec.json.decode(document) if isinstance(document, str) else document
    return None if decoded is None else Position.from_json(decoded)
