"""Records as they are, with the time they arrived here."""

from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def to_bronze(records: DataFrame, ingest_time: datetime) -> DataFrame:
    """RECORD_DDL to BRONZE_DDL."""
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
        F.lit(ingest_time).cast("timestamp").alias("ingest_time"),
    )


def bronze_rows(records: pa.RecordBatch, ingest_time: datetime) -> pa.RecordBatch:
    """As `to_bronze`, on an executor."""
    kind = records.schema.field("timestamp").type
    arrived_us = pa.scalar(ingest_time, kind).cast(pa.int64()).as_py()
    return pa.RecordBatch.from_pydict(
        {
            "topic": records.column("topic"),
            "partition": records.column("partition"),
            "offset": records.column("offset"),
            "timestamp": records.column("timestamp"),
            "timestamp_type": records.column("timestampType"),
            "key": records.column("key"),
            "value": records.column("value"),
            "headers": records.column("headers"),
            "ingest_time": pa.array(np.full(records.num_rows, arrived_us, np.int64), pa.int64()).view(kind),
        }
    )
