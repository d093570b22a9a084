"""A Spark session set up for pipelines, on this machine or on a cluster."""

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from headrace.pipeline.class_archive import archive_options
from headrace.pipeline.settings import SparkSettings

APPLICATION: Final = "headrace pipeline"
RULES: Final = {
    # What cannot be computed is null, which no condition counts as fulfilled; an error would let one record stop a query.
    "spark.sql.ansi.enabled": "false",
    # Of a name that a JSON object has twice, the last counts, as in a column.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # A batch of rows between the JVM and Python is bounded by its bytes too: a vector of Arrow ends at 2 GiB.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
}
"""How rows are judged, wherever Spark runs."""
_LOGGERS_OF_ERRORS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOGGING: Final = Path(__file__).parent / "templates" / "log4j2.properties"
_COMPILING: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""The JVM's second compiler took a third of the CPU of a session's first query, on the cores that the query needs. It
begins at ten times the usual counts: what is hot for longer than a second is compiled all the same, and an eighth query costs
what it did. Garbage is collected by the collector with the cheapest writes, for heaps of a few gigabytes."""


def open_session(settings: SparkSettings, *, application: str = APPLICATION) -> SparkSession:
    """Takes 3 to 15 seconds where it starts a JVM: tell the user before you call it."""
    # Executors must run the Python that has headrace installed, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", _worker_python())
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", _worker_python())
    builder = SparkSession.builder.appName(application)
    if settings.remote:
        builder = builder.remote(settings.remote)
        for name, value in {**RULES, **settings.conf}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    builder = builder.master(settings.master)
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def keep_stacks_to_themselves() -> None:
    """PySpark writes both stacks of every failed query to stderr, as one line of JSON, beside raising it."""
    for name in _LOGGERS_OF_ERRORS:
        PySparkLogger.getLogger(name).disabled = True


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at the same time."""
    if is_remote():
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return int(spark.sparkContext.defaultParallelism)


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """Spark's settings for a session whose JVM is started here."""
    archive = archive_options(settings.conf) if settings.class_archive else {}
    return {**_defaults(settings), **archive, **settings.conf}


def _worker_python() -> str:
    """`headrace-python`, where headrace was installed and not just put on the path."""
    installed = Path(sys.executable).with_name("headrace-python")
    return str(installed) if installed.exists() else sys.executable


def _defaults(settings: SparkSettings) -> dict[str, str]:
    defaults = {
        **RULES,
        "spark.driver.memory": settings.driver_memory,
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        # A machine that is busy for a while must not fail queries because a worker took its time to start.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_COMPILING}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
    }
    if "spark.driver.extraJavaOptions" in settings.conf:
        # Theirs take the place of ours, and of the log's configuration in them. Spark announces a level that is set so.
        defaults["spark.log.level"] = "ERROR"
    if settings.master.startswith("local"):
        defaults["spark.driver.bindAddress"] = "127.0.0.1"
        defaults["spark.driver.host"] = "127.0.0.1"
        defaults["spark.sql.shuffle.partitions"] = str(_local_cores(settings.master))
    return defaults


def _local_cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1
