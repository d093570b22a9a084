"""Records as they are, with the time they arrived here."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.steps.ranges import END_MS, FIRST_MS, timestamp_columns


def to_bronze(records: DataFrame, ingest_time: datetime) -> DataFrame:
    """RECORD_DDL to BRONZE_DDL."""
    timestamp, absurd_ms = timestamp_columns()
    return records.select(
        "topic",
        "partition",
        "offset",
        timestamp,
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
        F.lit(ingest_time).cast("timestamp").alias("ingest_time"),
        absurd_ms,
    )


def bronze_rows(records: pa.RecordBatch, ingest_time: datetime) -> pa.RecordBatch:
    """As `to_bronze`, on an executor."""
    kind = records.schema.field("timestamp").type
    arrived_us = pa.scalar(ingest_time, kind).cast(pa.int64()).as_py()
    time_us = records.column("timestamp").view(pa.int64())
    is_absurd = pc.or_(pc.less(time_us, FIRST_MS * 1000), pc.greater_equal(time_us, END_MS * 1000))
    absurd_ms = np.where(is_absurd, time_us.to_numpy(zero_copy_only=False) // 1000, 0)
    return pa.RecordBatch.from_pydict(
        {
            "topic": records.column("topic"),
            "partition": records.column("partition"),
            "offset": records.column("offset"),
            "timestamp": pc.if_else(is_absurd, None, records.column("timestamp")),
            "timestamp_type": records.column("timestampType"),
            "key": records.column("key"),
            "value": records.column("value"),
            "headers": records.column("headers"),
            "ingest_time": pa.array(np.full(records.num_rows, arrived_us, np.int64), pa.int64()).view(kind),
            "timestamp_absurd_ms": pc.if_else(is_absurd, pa.array(absurd_ms, pa.int64()), None),
        }
    )
