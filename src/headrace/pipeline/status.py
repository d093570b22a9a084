"""What a pipeline process is doing, as a file that `headrace pipeline status` and a Prometheus text collector read.

Written whole and renamed into place, so a reader never sees half of it. Knows nothing of Spark.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

STATUS_FILE: Final = "status.json"
METRICS_FILE: Final = "metrics.prom"

QUIET_MS: Final = 15_000
"""A running process writes twice a second; one that is silent for this long is gone, stopped or starved."""
STARTING_QUIET_MS: Final = 120_000

State = Literal["starting", "running", "failed", "stopped", "done"]


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: State = "starting"
    batch: int = -1
    """The last finished micro-batch."""
    rows_total: int = 0
    """Since this process started."""
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: dict[str, int] = {}
    """Records waiting, by topic and partition; only those that have any."""
    lag_total: int = 0
    restart_count: int = 0
    error: str | None = None
    changed_ms: int = 0


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    process_id: int
    started_ms: int
    written_ms: int
    state: Literal["starting spark", "running", "stopping", "stopped"]
    pipelines: tuple[PipelineStatus, ...] = ()

    def is_silent(self, *, now_ms: int) -> bool:
        """Whether it should have written since, and has not."""
        quiet_ms = STARTING_QUIET_MS if self.state == "starting spark" else QUIET_MS
        return self.state != "stopped" and now_ms - self.written_ms > quiet_ms


def write_status(directory: Path, status: ProcessStatus) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / STATUS_FILE, msgspec.json.format(msgspec.json.encode(status), indent=2))
    _replace(directory / METRICS_FILE, format_metrics(status).encode())


def read_status(directory: Path) -> ProcessStatus | None:
    try:
        data = (directory / STATUS_FILE).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=ProcessStatus)


class PipelineFamily(NamedTuple):
    name: str
    kind: Literal["counter", "gauge"]
    sentence: str
    value: Callable[[PipelineStatus], float]


FAMILIES: Final = (
    PipelineFamily("headrace_pipeline_up", "gauge", "Whether the query runs.", lambda p: p.state == "running"),
    PipelineFamily(
        "headrace_pipeline_rows_total", "counter", "Rows read since the process began.", lambda p: p.rows_total
    ),
    PipelineFamily("headrace_pipeline_lag_records", "gauge", "Records waiting to be read.", lambda p: p.lag_total),
    PipelineFamily("headrace_pipeline_restarts_total", "counter", "Failures of the query.", lambda p: p.restart_count),
    PipelineFamily("headrace_pipeline_batch_ms", "gauge", "Duration of the last micro-batch.", lambda p: p.batch_ms),
)


def format_metrics(status: ProcessStatus) -> str:
    """Prometheus' text format."""
    lines = []
    for family in FAMILIES:
        lines += [f"# HELP {family.name} {family.sentence}", f"# TYPE {family.name} {family.kind}"]
        lines += [f'{family.name}{{pipeline="{p.name}"}} {float(family.value(p)):g}' for p in status.pipelines]
    return "\n".join(lines) + "\n"


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.rename(path)
