"""The schema of every table we write, in one place, as the DDL that people read."""

from typing import Final

from pyspark.sql.types import StructType

RECORD_DDL: Final = """
    key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
"""What the source gives with headers; the input of every pipeline."""

BRONZE_DDL: Final = """
    topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>, ingest_time TIMESTAMP, timestamp_absurd_ms BIGINT
"""
"""`timestamp_absurd_ms` has a record's timestamp where it is outside the years 1 to 9999; `timestamp` is then null."""

SILVER_ORIGIN_DDL: Final = """
    _topic STRING, _topic_partition INT, _offset BIGINT, _timestamp TIMESTAMP, _event_time TIMESTAMP
"""
"""Where a typed row came from. The underscore keeps these out of the way of a payload's own names."""

DEAD_LETTER_DDL: Final = """
    topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>, reason STRING, column_name STRING, detail STRING,
    failed_time TIMESTAMP, timestamp_absurd_ms BIGINT
"""

LOGJAM_MINUTE_DDL: Final = """
    app STRING, env STRING, stream STRING, day DATE, minute INT, minute_time TIMESTAMP, scope STRING, page STRING,
    count BIGINT,
    sums MAP<STRING, DOUBLE>, squares MAP<STRING, DOUBLE>, maxima MAP<STRING, DOUBLE>,
    responses MAP<STRING, BIGINT>, severities MAP<STRING, BIGINT>, exceptions MAP<STRING, BIGINT>,
    callers MAP<STRING, BIGINT>, heatmap MAP<STRING, BIGINT>,
    apdex_happy BIGINT, apdex_satisfied BIGINT, apdex_tolerating BIGINT, apdex_frustrated BIGINT,
    total_time_sketch BINARY, page_time_sketch BINARY, ajax_time_sketch BINARY,
    late_count BIGINT, ingest_time TIMESTAMP
"""
"""Mergeable partials of one micro-batch: add counts and sums, take the larger maximum, merge sketches."""

LOGJAM_REQUEST_DDL: Final = """
    app STRING, env STRING, stream STRING, request_id STRING, started_time TIMESTAMP, page STRING, module STRING,
    code INT, severity INT, total_time DOUBLE, exceptions ARRAY<STRING>, reasons ARRAY<STRING>, body STRING,
    _topic STRING, _topic_partition INT, _offset BIGINT
"""
"""Requests worth keeping whole (X2.10)."""

QUALITY_DDL: Final = """
    checked_time TIMESTAMP, pipeline STRING, check_name STRING, subject STRING, status STRING,
    value DOUBLE, threshold DOUBLE, detail STRING
"""


def parse_ddl(ddl: str) -> StructType:
    """Spark's own parser does the work, so a session must be active."""
    return StructType.fromDDL(" ".join(ddl.split()))
