"""Runs pipelines: one session, a query each, restarted when they fail, stopped between batches.

A failing query never takes the others with it. It is started again after a pause that doubles up to a minute, from its
checkpoint, and its error is in the status until a batch succeeds.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.clock import Clock, SystemClock
from headrace.pipeline.explain import brief
from headrace.pipeline.housekeeping import Housekeeping
from headrace.pipeline.progress import read_progress
from headrace.pipeline.queries import start_query
from headrace.pipeline.session import open_session
from headrace.pipeline.settings import PipelineConfig
from headrace.pipeline.status import PipelineStatus, ProcessStatus, write_status

BACKOFF_MIN_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
POLL_S: Final = 0.5
AVAILABLE_NOW_ATTEMPTS_MAX: Final = 3
"""Starts of a query in a run until caught up: a broker that moves or a busy machine is worth another try."""
STOP_DEADLINE_S: Final = 60.0
"""How long a running batch may take to finish before it is interrupted; it would be repeated, so nothing is lost."""

_SPARK_GONE: Final = (Py4JError, PySparkException, ConnectionError)
"""What calls give when the JVM, or the Spark Connect server, is no more."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Running:
    """One pipeline's query and its history in this process."""

    status: PipelineStatus
    query: StreamingQuery | None = None
    backoff_s: float = field(default_factory=lambda: BACKOFF_MIN_S)
    start_at_s: float = 0.0
    reported_batch: int = -1


class Runner:
    def __init__(
        self,
        config: PipelineConfig,
        names: Sequence[str],
        *,
        clock: Clock | None = None,
        is_available_now: bool = False,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._is_available_now = is_available_now
        self._tell = tell
        self._running = {name: _Running(PipelineStatus(name=name)) for name in names}
        self._started_ms = self._clock.now_ms()
        self._is_stopping = False
        self._housekeeping = Housekeeping(config, names, self._clock, tell)

    def stop(self) -> None:
        """Ask for a clean stop; safe to call from a signal handler."""
        self._is_stopping = True

    def run(self, *, parent_id: int | None = None) -> int:
        """Until stopped, or until all have caught up. The exit status: 1 when a pipeline ended in failure.

        With `parent_id`, also until that process is no longer our parent: an orphaned pipeline must not go on.
        """
        self._write("starting spark")
        self._tell("starting Spark (3 to 15 seconds)")
        began = time.monotonic()
        spark: SparkSession | None = None
        try:
            spark = open_session(self._config.spark)
            self._tell(f"Spark is ready after {time.monotonic() - began:.1f} s")
            self._supervise(spark, parent_id)
            self._stop_queries()
        except _SPARK_GONE as error:
            self._give_up(error)
        finally:
            if spark is not None:
                with suppress(*_SPARK_GONE):
                    spark.stop()
            self._write("stopped")
        return int(any(running.status.state == "failed" for running in self._running.values()))

    def _supervise(self, spark: SparkSession, parent_id: int | None) -> None:
        while not self._is_stopping and not self._is_finished():
            if parent_id is not None and os.getppid() != parent_id:
                self._tell("the node is gone; stopping")
                return
            for running in self._running.values():
                self._look_after(spark, running)
            if not self._is_available_now:
                self._housekeeping.look(spark)
            self._write("running")
            time.sleep(POLL_S)

    def _give_up(self, error: BaseException) -> None:
        """Without Spark there is nothing to supervise; whoever started us starts us again, and no batch is lost."""
        log.error("spark is gone", error=brief(error))
        self._tell("Spark is gone (its JVM or server ended); start again to go on where it stopped")
        for running in self._running.values():
            if running.status.state != "done":
                self._change(running, state="failed", error="Spark is gone")

    def _is_finished(self) -> bool:
        return self._is_available_now and all(self._is_over(running) for running in self._running.values())

    def _is_over(self, running: _Running) -> bool:
        """Whether nothing more is to be done for it. A run until caught up does not try for ever."""
        if running.status.state == "failed":
            return self._is_available_now and running.status.restart_count >= AVAILABLE_NOW_ATTEMPTS_MAX
        return running.status.state == "done"

    def _look_after(self, spark: SparkSession, running: _Running) -> None:
        if self._is_over(running):
            return
        if running.query is None:
            if time.monotonic() >= running.start_at_s:
                self._start(spark, running)
            return
        self._take_progress(running)
        if running.query.isActive:
            return
        error = running.query.exception()
        if error is None:
            self._change(running, state="done", error=None)
        else:
            self._fail(running, error)
        running.query = None

    def _start(self, spark: SparkSession, running: _Running) -> None:
        name = running.status.name
        try:
            if self._config.spark.remote is None:
                spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            running.query = start_query(spark, self._config, name, is_available_now=self._is_available_now)
        except Exception as error:  # the supervisor of a background task: any failure is its business
            # A refused connection may be the broker's, which comes back, or the JVM's, which does not.
            _require_spark(spark)
            self._fail(running, error)
            return
        self._change(running, state="running")
        self._tell(f"{name}: started")

    def _fail(self, running: _Running, error: BaseException) -> None:
        text = brief(error)
        running.start_at_s = time.monotonic() + running.backoff_s
        running.backoff_s = min(running.backoff_s * 2, BACKOFF_MAX_S)
        self._change(running, state="failed", error=text, restart_count=running.status.restart_count + 1)
        log.error("pipeline failed", pipeline=running.status.name, error=text)
        self._tell(f"{running.status.name}: failed: {text}")

    def _take_progress(self, running: _Running) -> None:
        assert running.query is not None
        for report in running.query.recentProgress:
            progress = read_progress(_as_mapping(report))
            if progress.batch <= running.reported_batch or not progress.rows:
                # Spark also reports triggers that made no batch; what waits then is news all the same.
                if progress.batch >= running.reported_batch:
                    self._change(running, lag=progress.lag, lag_total=sum(progress.lag.values()))
                continue
            running.reported_batch = progress.batch
            running.backoff_s = BACKOFF_MIN_S
            self._change(
                running,
                state="running",
                error=None,
                batch=progress.batch,
                rows_total=running.status.rows_total + progress.rows,
                rows_per_second=progress.rows_per_second,
                batch_ms=progress.duration_ms,
                lag=progress.lag,
                lag_total=sum(progress.lag.values()),
            )
            self._tell(
                f"{running.status.name}: batch {progress.batch}, {progress.rows:,} rows in "
                f"{progress.duration_ms / 1000:.1f} s ({progress.rows_per_second:,.0f} rows/s), "
                f"lag {running.status.lag_total:,}"
            )

    def _stop_queries(self) -> None:
        """Between batches where possible; a batch that takes too long is interrupted and will be repeated."""
        self._write("stopping")
        deadline = time.monotonic() + STOP_DEADLINE_S
        for running in self._running.values():
            query = running.query
            if query is None:
                continue
            while query.isActive and query.status.get("isTriggerActive") and time.monotonic() < deadline:
                time.sleep(0.05)
            self._take_progress(running)
            query.stop()
            if running.status.state == "running":
                self._change(running, state="stopped")
            batch = running.status.batch
            self._tell(
                f"{running.status.name}: stopped {f'after batch {batch}' if batch >= 0 else 'before its first batch'}"
            )
        self._housekeeping.wait(max(0.0, deadline - time.monotonic()))

    # A change names fields of `PipelineStatus`; msgspec refuses others.
    def _change(self, running: _Running, **changes: Any) -> None:
        running.status = msgspec.structs.replace(running.status, changed_ms=self._clock.now_ms(), **changes)

    def _write(self, state: Any) -> None:
        status = ProcessStatus(
            process_id=os.getpid(),
            started_ms=self._started_ms,
            written_ms=self._clock.now_ms(),
            state=state,
            pipelines=tuple(running.status for running in self._running.values()),
        )
        write_status(Path(self._config.state_dir), status)


def _require_spark(spark: SparkSession) -> None:
    """Raises one of `_SPARK_GONE` when nobody answers any more."""
    spark.conf.get("spark.sql.session.timeZone")


def _as_mapping(report: Any) -> dict[str, Any]:
    return report if isinstance(report, dict) else dict(msgspec.json.decode(report.json))
