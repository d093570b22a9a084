"""Records as they are, with the time they arrived here."""

from datetime import datetime

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
