"""A landing pipeline as a streaming query: source, `foreachBatch`, checkpoint, trigger.

What Spark calls for every micro-batch is a `BatchLander`. It can be pickled, because Spark Connect runs it elsewhere, and
opens its tables where it is called.
"""

from typing import Any

import msgspec
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.clock import SystemClock
from headrace.pipeline.batches import Batch, coverage_between, names_by_id
from headrace.pipeline.checkpoint import Checkpoint, mend, require_file_system
from headrace.pipeline.failpoints import reach
from headrace.pipeline.jobs.bronze import Bronze
from headrace.pipeline.jobs.landing import Landing
from headrace.pipeline.jobs.logjam import LogjamMinute
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.payload_schema import payload_shape
from headrace.pipeline.session import cores_of
from headrace.pipeline.settings import BronzeSettings, Pipeline, PipelineConfig, SilverSettings
from headrace.pipeline.source.log import open_log
from headrace.pipeline.source.options import parse_options
from headrace.pipeline.source.planning import resolve_bound, starting_position
from headrace.pipeline.tables.catalog import open_catalog
from headrace.pipeline.tables.committing import Appended
from headrace.pipeline.tables.iceberg import IcebergTables
from headrace.pipeline.tables.port import CommitToken, Tables

log = structlog.get_logger(__name__)


def make_landing(name: str, settings: Pipeline) -> Landing:
    """The pipeline that `settings` describes. Needs an active session, whose parser reads the schemas."""
    if isinstance(settings, BronzeSettings):
        return Bronze(name, settings.subscription, settings.table)
    if isinstance(settings, SilverSettings):
        return Silver(
            name,
            settings.subscription,
            table=settings.table,
            dead_table=settings.dead_table,
            shape=payload_shape(settings),
            expectations=settings.expectations,
        )
    return LogjamMinute(name, settings)


def open_tables(config: PipelineConfig) -> IcebergTables:
    return IcebergTables(open_catalog(config.warehouse), retention=config.upkeep.retention)


def bind_tables(landing: Landing, tables: Tables) -> None:
    """Create or widen the pipeline's tables and hand them over."""
    landing.bind([tables.ensure(definition) for definition in landing.definitions()])


class BatchLander:
    """Lands micro-batches of one pipeline."""

    def __init__(self, config: PipelineConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._landing: Landing | None = None
        self._writer: str | None = None
        self._clock = SystemClock()

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchLander, (self._config, self._name)

    def __call__(self, frame: DataFrame, batch_id: int) -> Appended:
        reach("before batch")
        spark = frame.sparkSession
        checkpoint = Checkpoint(spark, self._config.checkpoint(self._name))
        if self._landing is None or self._writer is None:
            self._landing = make_landing(self._name, self._config.pipeline(self._name))
            bind_tables(self._landing, open_tables(self._config))
            self._writer = f"{self._name}:{checkpoint.query_id()}"
        checkpoint.flush(batch_id)
        bounds = checkpoint.bounds(batch_id)
        batch = Batch(
            frame=frame,
            covered=coverage_between(bounds.start, bounds.end),
            topic_names=names_by_id(bounds.end),
            token=CommitToken(self._writer, batch_id),
            now_ms=self._clock.now_ms(),
        )
        appended = self._landing.land(batch)
        reach("after batch")
        return appended


def start_query(
    spark: SparkSession, config: PipelineConfig, name: str, *, is_available_now: bool = False
) -> StreamingQuery:
    """Start or resume the pipeline's query. With `is_available_now` it stops when it has caught up."""
    settings = config.pipeline(name)
    require_file_system(spark, config.checkpoint(name))
    bind_tables(make_landing(name, settings), open_tables(config))
    for torn in mend(config.checkpoint(name)):
        log.warning("checkpoint file was torn; its batch is run again", pipeline=name, file=torn)
    frame = spark.readStream.format("headrace").options(**stream_options(spark, config, name)).load()
    writer: DataStreamWriter = (
        frame.writeStream.foreachBatch(BatchLander(config, name))
        .queryName(name)
        .option("checkpointLocation", config.checkpoint(name))
    )
    if is_available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{settings.trigger_seconds} seconds").start()


def stream_options(spark: SparkSession, config: PipelineConfig, name: str) -> dict[str, str]:
    settings = config.pipeline(name)
    options = {
        **source_options(config, settings),
        "cores": str(cores_of(spark)),
        "failOnDataLoss": str(settings.failOnDataLoss).lower(),
    }
    if settings.subscribe:
        options["subscribe"] = settings.subscribe
    else:
        options["subscribePattern"] = settings.subscribePattern
    if settings.maxOffsetsPerTrigger is not None:
        options["maxOffsetsPerTrigger"] = str(settings.maxOffsetsPerTrigger)
    if settings.minOffsetsPerTrigger is not None:
        options["minOffsetsPerTrigger"] = str(settings.minOffsetsPerTrigger)
        options["maxTriggerDelay"] = settings.maxTriggerDelay
    options["startingOffsets"] = _first_offsets(spark, config, name, options)
    return options


def source_options(config: PipelineConfig, settings: Pipeline) -> dict[str, str]:
    return {**config.source.options(), "includeHeaders": "true", "isolation.level": settings.isolation_level}


def _first_offsets(spark: SparkSession, config: PipelineConfig, name: str, options: dict[str, str]) -> str:
    """`latest` is resolved once and written down: a query that dies before its first commit must not begin later."""
    if config.pipeline(name).startingOffsets == "earliest":
        return "earliest"
    checkpoint = Checkpoint(spark, config.checkpoint(name))
    position = checkpoint.first_position()
    if position is None:
        parsed = parse_options({**options, "startingOffsets": "latest"}, is_stream=True)
        source = open_log(parsed)
        view = source.view()
        position = starting_position(resolve_bound(parsed.starting, view, source.offset_at, is_start=True), view)
        checkpoint.keep_first_position(position)
    return msgspec.json.encode(position.to_json()).decode()
