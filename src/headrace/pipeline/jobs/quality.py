"""`quality`: tables held against the log and against themselves. Findings are rows of a table of their own.

continuity   the offsets a table covers have no holes
raw          as many rows as the log has records in the covered range: the log against bronze and silver
duplicates   no record is in a table twice
minutes      the requests counted in gold are those that came in, less the dead letters
dead letters their share of what came in
nulls        their share in a column
freshness    how long ago the newest row landed
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, Literal

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import Clock
from headrace.errors import NotFound
from headrace.pipeline.batches import offsets_of
from headrace.pipeline.queries import open_tables, source_options
from headrace.pipeline.schemas import QUALITY_DDL, parse_ddl
from headrace.pipeline.settings import BronzeSettings, LogjamSettings, Pipeline, PipelineConfig, SilverSettings
from headrace.pipeline.source.log import View, open_log
from headrace.pipeline.source.offsets import format_offsets
from headrace.pipeline.source.options import parse_options
from headrace.pipeline.tables.committing import append_once
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.pipeline.tables.iceberg import IcebergTable, IcebergTables
from headrace.pipeline.tables.port import CommitToken, PartitionField, TableDefinition

FINDINGS_TABLE: Final = "quality.findings"
FRESHNESS_WARN_S: Final = 300.0
DEAD_SHARE_WARN: Final = 0.01
NULL_SHARE_WARN: Final = 0.5

Status = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    check: str
    subject: str
    status: Status
    value: float
    threshold: float = 0.0
    detail: str = ""


def check_all(spark: SparkSession, config: PipelineConfig, clock: Clock) -> list[Finding]:
    """Every check of every pipeline that has run; the findings are also appended to `quality.findings`."""
    tables = open_tables(config)
    findings = [
        finding
        for name, settings in config.pipelines.items()
        for finding in _check_pipeline(spark, config, name, settings, tables, clock)
    ]
    _record(spark, tables, findings, clock)
    return findings


def _check_pipeline(
    spark: SparkSession, config: PipelineConfig, name: str, settings: Pipeline, tables: IcebergTables, clock: Clock
) -> Iterator[Finding]:
    try:
        table = tables.open(settings.table)
    except NotFound:
        return
    view = _view(config, settings)
    coverage = _existing(table.coverage(), view)
    yield _continuity(name, table, coverage, view)
    expected = _count_raw(spark, config, settings, coverage, view)
    match settings:
        case BronzeSettings():
            rows = table.read(spark, ["topic", "partition", "offset", "ingest_time"])
            yield _equal(name, "raw", settings.table, rows.count(), expected)
            yield _duplicates(name, settings.table, rows, ["topic", "partition", "offset"])
            yield freshness(name, settings.table, rows, "ingest_time", clock)
        case SilverSettings():
            rows, dead = table.read(spark), tables.open(settings.dead_table).read(spark, ["offset"])
            yield _equal(name, "raw", settings.table, rows.count() + dead.count(), expected)
            yield _duplicates(name, settings.table, rows, ["_topic", "_topic_partition", "_offset"])
            yield _dead_share(name, settings.dead_table, dead.count(), expected)
            yield from _nulls(name, settings.table, rows)
        case LogjamSettings():
            minutes = table.read(spark, ["scope", "count"])
            dead = tables.open(settings.dead_letters).read(spark, ["offset"])
            counted = minutes.where("scope = 'all_pages'").agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]
            yield _equal(name, "minutes", settings.table, counted + dead.count(), expected)
            yield _dead_share(name, settings.dead_letters, dead.count(), expected)


def _view(config: PipelineConfig, settings: Pipeline) -> View:
    topics = (
        {"subscribe": settings.subscribe} if settings.subscribe else {"subscribePattern": settings.subscribePattern}
    )
    return open_log(parse_options({**source_options(config, settings), **topics}, is_stream=False)).view()


def _existing(coverage: Coverage, view: View) -> Coverage:
    """The part of the coverage that the log still has: retention takes the rest."""
    there = Coverage(
        {
            PartitionId(partition.topic_id, place.partition): [Range(partition.log_start, partition.end)]
            for place, partition in view.items()
        }
    )
    return coverage.minus(coverage.minus(there))


def _continuity(name: str, table: IcebergTable, coverage: Coverage, view: View) -> Finding:
    names = {partition.topic_id: place.topic for place, partition in view.items()}
    holes = [
        f"{names[key.topic_id]}-{key.partition}: {left.end} to {right.start}"
        for key, parts in coverage.ranges.items()
        for left, right in pairwise(parts)
    ]
    status: Status = "fail" if holes else "ok"
    return Finding(
        pipeline=name,
        check="continuity",
        subject=table.name,
        status=status,
        value=len(holes),
        detail="; ".join(holes[:5]),
    )


def _count_raw(spark: SparkSession, config: PipelineConfig, settings: Pipeline, coverage: Coverage, view: View) -> int:
    """Records the log has in the covered range, counted by reading them: markers and aborted ones are no records."""
    names = {partition.topic_id: place.topic for place, partition in view.items()}
    whole = Coverage({key: [Range(parts[0].start, parts[-1].end)] for key, parts in coverage.ranges.items()})
    if not whole:
        return 0
    starts, ends = offsets_of(whole, names)
    assigned: dict[str, list[int]] = {}
    for place in sorted(starts):
        assigned.setdefault(place.topic, []).append(place.partition)
    options = {
        **source_options(config, settings),
        "includeHeaders": "false",
        "assign": msgspec.json.encode(assigned).decode(),
        "startingOffsets": msgspec.json.encode(format_offsets(starts)).decode(),
        "endingOffsets": msgspec.json.encode(format_offsets(ends)).decode(),
    }
    return int(spark.read.format("headrace").schema("offset BIGINT").options(**options).load().count())


def _equal(name: str, check: str, subject: str, found: int, expected: int) -> Finding:
    status: Status = "ok" if found == expected else "fail"
    return Finding(
        pipeline=name,
        check=check,
        subject=subject,
        status=status,
        value=found,
        threshold=expected,
        detail="" if status == "ok" else f"{found} rows for {expected} records",
    )


def _duplicates(name: str, subject: str, rows: DataFrame, key: list[str]) -> Finding:
    count = rows.groupBy(*key).count().where("count > 1").count()
    return Finding(pipeline=name, check="duplicates", subject=subject, status="fail" if count else "ok", value=count)


def _dead_share(name: str, subject: str, dead: int, expected: int) -> Finding:
    share = dead / expected if expected else 0.0
    status: Status = "warn" if share > DEAD_SHARE_WARN else "ok"
    return Finding(
        pipeline=name, check="dead letters", subject=subject, status=status, value=share, threshold=DEAD_SHARE_WARN
    )


def _nulls(name: str, subject: str, rows: DataFrame) -> Iterator[Finding]:
    columns = [column for column in rows.columns if not column.startswith("_")]
    if not columns:
        return
    shares = rows.agg(*(_null_share(column) for column in columns)).collect()[0]
    for column in columns:
        share = float(shares[column] or 0.0)
        status: Status = "warn" if share > NULL_SHARE_WARN else "ok"
        yield Finding(
            pipeline=name,
            check="nulls",
            subject=f"{subject}.{column}",
            status=status,
            value=share,
            threshold=NULL_SHARE_WARN,
        )


def _null_share(column: str) -> Column:
    return F.avg(F.col(f"`{column}`").isNull().cast("double")).alias(column)


def freshness(name: str, subject: str, rows: DataFrame, column: str, clock: Clock) -> Finding:
    # As a number: a time would be collected in the time zone of this machine, without saying so.
    newest_ms = rows.agg(F.unix_millis(F.max(column))).collect()[0][0]
    age_s = (clock.now_ms() - newest_ms) / 1000 if newest_ms is not None else 0.0
    status: Status = "warn" if age_s > FRESHNESS_WARN_S else "ok"
    return Finding(
        pipeline=name,
        check="freshness",
        subject=subject,
        status=status,
        value=age_s,
        threshold=FRESHNESS_WARN_S,
        detail="seconds since the newest row landed",
    )


def _record(spark: SparkSession, tables: IcebergTables, findings: list[Finding], clock: Clock) -> None:
    now_ms = clock.now_ms()
    schema = parse_ddl(QUALITY_DDL)
    table = tables.ensure(
        TableDefinition(
            name=FINDINGS_TABLE,
            schema=schema,
            partitioning=(PartitionField("month", "checked_time"),),
            comment="What the quality checks found",
        )
    )
    checked = datetime.fromtimestamp(now_ms / 1000, UTC)
    rows = [
        (checked, f.pipeline, f.check, f.subject, f.status, float(f.value), float(f.threshold), f.detail)
        for f in findings
    ]
    frame = spark.createDataFrame(rows, schema)
    append_once(table, lambda _: frame, token=CommitToken("quality", now_ms), covered=Coverage())
