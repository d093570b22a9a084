"""Upkeep of tables by the process that fills them, beside its queries: few files, few snapshots, no orphans.

Runs in a thread of its own, because rewriting a day of small files must not hold up supervision. A table whose upkeep
fails is looked at again next time; the queries never notice.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import NotFound
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.queries import open_tables
from headrace.pipeline.settings import PipelineConfig

MINUTE_MS: Final = 60_000

log = structlog.get_logger(__name__)


class Housekeeping:
    """Compacts the tables of some pipelines every so often. `look` is cheap, and called all the time."""

    def __init__(self, config: PipelineConfig, names: Sequence[str], clock: Clock, tell: Callable[[str], None]) -> None:
        self._config = config
        self._tables = sorted({table for name in names for table in config.pipeline(name).tables})
        self._clock = clock
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._next_s = time.monotonic() + self._interval_s

    def look(self, spark: SparkSession) -> None:
        """Start a round if it is time for one and none is under way."""
        if not self._interval_s or time.monotonic() < self._next_s or (self._thread and self._thread.is_alive()):
            return
        self._next_s = time.monotonic() + self._interval_s
        self._thread = threading.Thread(target=self._tidy_all, args=(spark,), name="housekeeping", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Let a round finish; one that takes longer is cut off, which leaves orphans for the next."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def _interval_s(self) -> float:
        return self._config.upkeep.every_minutes * 60

    def _tidy_all(self, spark: SparkSession) -> None:
        for name in self._tables:
            try:
                self._tidy(spark, name)
            except NotFound:
                continue
            except Exception as error:  # the supervisor of a background task: any failure is its business
                log.warning("upkeep failed", table=name, error=str(error))

    def _tidy(self, spark: SparkSession, name: str) -> None:
        age_ms = int(self._config.upkeep.orphan_age_minutes * MINUTE_MS)
        done = compact(spark, open_tables(self._config).open(name), self._clock, orphan_age_ms=age_ms)
        if done.files_before or done.orphans_deleted:
            self._tell(
                f"{name}: {done.files_before} files became {done.files_after}, {done.orphans_deleted} orphans deleted"
            )
