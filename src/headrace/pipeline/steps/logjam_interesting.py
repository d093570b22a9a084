"""Requests worth keeping whole (X2.10): slow, failing, warned about, or sampled from the 4xx."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WARN: Final = 2
SERVER_ERROR: Final = 500
CLIENT_ERROR: Final = 400
_SAMPLE_SCALE: Final = 10_000


def to_interesting(requests: DataFrame, *, import_threshold_ms: float, sampled_400s_percent: float) -> DataFrame:
    """Requests (without a reason) to LOGJAM_REQUEST_DDL, with all the reasons each was kept for."""
    why = F.array_compact(
        F.array(
            F.when(F.col("total_time") > import_threshold_ms, "slow"),
            F.when(F.col("severity") >= WARN, F.concat(F.lit("severity "), F.col("severity").cast("string"))),
            F.when(F.col("code") >= SERVER_ERROR, "server error"),
            F.when(_is_sampled(sampled_400s_percent), "sampled client error"),
            F.when(F.size(F.coalesce("exceptions", F.array())) > 0, "exceptions"),
        )
    )
    kept = requests.where("reason IS NULL").withColumn("reasons", why).where(F.size("reasons") > 0)
    return kept.select(
        "app",
        "env",
        "stream",
        F.col("fields")["request_id"].alias("request_id"),
        "started_time",
        "page",
        "module",
        "code",
        "severity",
        "total_time",
        "exceptions",
        "reasons",
        F.make_valid_utf8(F.col("value").cast("string")).alias("body"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_topic_partition"),
        F.col("offset").alias("_offset"),
    )


def _is_sampled(percent: float) -> Column:
    """By request id rather than by chance: a repeated batch keeps the same requests."""
    is_client_error = (F.col("code") >= CLIENT_ERROR) & (F.col("code") < SERVER_ERROR)
    place = F.pmod(F.xxhash64(F.coalesce(F.col("fields")["request_id"], F.lit(""))), F.lit(_SAMPLE_SCALE))
    return is_client_error & (place < int(percent * _SAMPLE_SCALE / 100))
