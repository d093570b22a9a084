"""Topics and tables as temporary views, for SQL. Only what a query mentions is looked up.

Temporary views have one-part names, so a dot is part of the name and the name stands in backticks: `topic.orders`,
`bronze.records`.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from headrace.errors import NotFound
from headrace.pipeline.queries import open_tables
from headrace.pipeline.settings import LogjamSettings, PipelineConfig
from headrace.pipeline.steps.logjam_views import merge_minutes

TOPIC_PREFIX: Final = "topic."
_MENTION: Final = re.compile(r"`([A-Za-z][\w.\-]*\.[\w.\-]+)`")


def create_views(spark: SparkSession, config: PipelineConfig, query: str) -> None:
    """Views for everything in backticks with a dot in it. Raises `NotFound` for what is neither topic nor table."""
    for name in sorted(set(_MENTION.findall(query))):
        create_view(spark, config, name)


def create_view(spark: SparkSession, config: PipelineConfig, name: str) -> None:
    """`NotFound` for a name that is neither a topic's nor a table's."""
    if name.startswith(TOPIC_PREFIX):
        frame = read_topic(spark, config, name[len(TOPIC_PREFIX) :])
    else:
        frame = _read_table(spark, config, name)
    frame.createOrReplaceTempView(f"`{name}`")


def read_topic(spark: SparkSession, config: PipelineConfig, topic: str) -> DataFrame:
    """A topic's records now, key and value as text."""
    options = {**config.source.options(), "subscribe": topic, "filterPushdown": "true"}
    records = spark.read.format("headrace").options(**options).load()
    return records.selectExpr(
        "partition", "offset", "timestamp", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
    )


def _read_table(spark: SparkSession, config: PipelineConfig, name: str) -> DataFrame:
    tables = open_tables(config)
    for pipeline in config.pipelines.values():
        if isinstance(pipeline, LogjamSettings):
            for unit in ("minute", "hour", "day"):
                if name == f"{pipeline.table}_by_{unit}":
                    return merge_minutes(tables.open(pipeline.table).read(spark), unit=unit)
    if name not in tables.names():
        raise NotFound(f"no table {name}; there are {', '.join(tables.names()) or 'none'}, and topics as topic.<name>")
    return tables.open(name).read(spark)


def plain_rows(rows: Iterable[Row], schema: StructType) -> list[dict[str, Any]]:
    """Rows as values that JSON and a terminal can show."""
    return [
        {field.name: _plain(value, field.dataType) for field, value in zip(schema.fields, row, strict=True)}
        for row in rows
    ]


# Values of any column type.
def _plain(value: Any, kind: DataType) -> Any:
    match value, kind:
        case None, _:
            return None
        case bytes() | bytearray(), _:
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return bytes(value).hex()
        case datetime(), TimestampType():
            return utc_time(value).isoformat()
        case datetime() | date(), _:
            return value.isoformat()
        case _, StructType():
            return {field.name: _plain(item, field.dataType) for field, item in zip(kind.fields, value, strict=True)}
        case dict(), MapType():
            return {str(_plain(name, kind.keyType)): _plain(item, kind.valueType) for name, item in value.items()}
        case list(), ArrayType():
            return [_plain(item, kind.elementType) for item in value]
        case _:
            return value


def utc_time(collected: datetime) -> datetime:
    """A moment as Spark collects it, in this machine's own time and without saying so, by the clock of the world."""
    return collected.astimezone(UTC)
