"""A fresh Spark process that does one piece of work and says what it cost: `python -m headrace.bench.load.spark JOB`."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.bench.errors import LoadFailed
from headrace.bench.process import read_usage
from headrace.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS_MAX: Final = 1800
_PIPELINE: Final = "orders"


class ScanJob(msgspec.Struct, frozen=True, kw_only=True, tag="scan"):
    """`sum(length(value))` over what a source gives."""

    source: str
    options: dict[str, str]
    schema: str | None = None
    """Only these columns, for a source that can leave the others out."""
    jars: list[str] = []
    conf: dict[str, str] = {}
    """Spark's settings in the place of headrace's own."""


class BackfillJob(msgspec.Struct, frozen=True, kw_only=True, tag="backfill"):
    """Orders from a bucket into a typed table in `directory`."""

    bucket: str
    topic: str
    directory: str


SparkJob = ScanJob | BackfillJob


class SparkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    """The sum, or the rows that landed."""
    session_seconds: float
    work_seconds: float
    cpu_seconds: float
    """Of driver, JVM and workers, from their start on."""
    total_seconds: float = 0.0
    """From before the process was there to its answer."""
    again_seconds: float = 0.0
    """The same once more in the same session, which has compiled what it needs."""


def keep_classes() -> None:
    """Whatever starts Spark from now on maps its classes, as from the second start on a machine. Where Java keeps none, none do."""
    from headrace.pipeline.class_archive import archive_for

    archive = archive_for({})
    if archive is not None and archive.is_due:
        with suppress(Unavailable):
            archive.make()


def run_spark(job: SparkJob) -> SparkOutcome:
    """Run `job` in a process of its own; the time that takes to start is part of the outcome."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as complaints:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.bench.load.spark", msgspec.json.encode(job).decode()],
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            timeout=_SECONDS_MAX,
            env=_installed_environment(),
        )
        if done.returncode != 0:
            complaints.seek(0)
            raise LoadFailed(f"Spark ended with status {done.returncode}: {complaints.read().strip()[-500:]}")
    outcome = msgspec.json.decode(done.stdout.strip().rpartition("\n")[2], type=SparkOutcome)
    # The process says when it was done, by the machine's clock: its end is not part of the work.
    return msgspec.structs.replace(outcome, total_seconds=outcome.total_seconds - began)


def _installed_environment() -> dict[str, str]:
    """As if headrace was installed: pip compiles modules, and a work tree where nobody may would compile them in each process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=SparkJob)
    outcome = _scan(job) if isinstance(job, ScanJob) else _backfill(job)
    sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    sys.stdout.flush()
    # Stopping Spark takes seconds and is nobody's work; the JVM ends with us.
    os._exit(0)


def _scan(job: ScanJob) -> SparkOutcome:
    from headrace.pipeline.session import open_session
    from headrace.pipeline.settings import SparkSettings

    began = time.monotonic()
    conf = job.conf | ({"spark.jars": ",".join(job.jars)} if job.jars else {})
    spark = open_session(SparkSettings(conf=conf))
    session_seconds = time.monotonic() - began
    began = time.monotonic()
    outcome = _outcome(_sum_of_lengths(spark, job), session_seconds, began)
    began = time.monotonic()
    if _sum_of_lengths(spark, job) != outcome.found:
        raise LoadFailed("the second reading found something else than the first")
    return msgspec.structs.replace(outcome, again_seconds=time.monotonic() - began)


def _sum_of_lengths(spark: "SparkSession", job: ScanJob) -> int:
    reader = spark.read.format(job.source).options(**job.options)
    frame = (reader.schema(job.schema) if job.schema else reader).load()
    (row,) = frame.selectExpr("sum(length(value))").collect()
    return int(row[0] or 0)


def _backfill(job: BackfillJob) -> SparkOutcome:
    # Only here: a scan would wait for the Kafka client that orders are produced with.
    from headrace.bench.load.orders import ORDER_DDL, ORDER_EVENT_TIME
    from headrace.pipeline.jobs.backfill import Backfill, Wanted
    from headrace.pipeline.queries import bind_tables, make_landing, open_tables
    from headrace.pipeline.session import open_session
    from headrace.pipeline.settings import parse_config

    settings = {
        "kind": "silver",
        "subscribe": job.topic,
        "table": "silver.orders",
        "schema": ORDER_DDL,
        "event_time": ORDER_EVENT_TIME,
    }
    document = {"source": {"bucket": job.bucket}, "pipelines": {_PIPELINE: settings}}
    config = parse_config(document, base=Path(job.directory))
    began = time.monotonic()
    spark = open_session(config.spark)
    session_seconds = time.monotonic() - began
    began = time.monotonic()
    tables = open_tables(config)
    landing = make_landing(_PIPELINE, config.pipeline(_PIPELINE))
    bind_tables(landing, tables)
    backfill = Backfill(spark, config, landing, Wanted())
    count = sum(backfill.land(piece) for piece in backfill.pieces(tables.open("silver.orders").coverage()))
    return _outcome(count, session_seconds, began)


def _outcome(found: int, session_seconds: float, began: float) -> SparkOutcome:
    now = time.monotonic()
    return SparkOutcome(
        found=found,
        session_seconds=session_seconds,
        work_seconds=now - began,
        cpu_seconds=read_usage(os.getpid()).cpu_seconds,
        total_seconds=now,
    )


if __name__ == "__main__":
    main()
