"""Partials put together: minutes, hours or days with their score and percentiles (X2.11)."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_ADDED_MAPS: Final = ("sums", "squares", "responses", "severities", "exceptions", "callers", "heatmap")
_ADDED: Final = ("count", "apdex_happy", "apdex_satisfied", "apdex_tolerating", "apdex_frustrated", "late_count")
_SKETCHES: Final = ("total_time", "page_time", "ajax_time")
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def merge_minutes(partials: DataFrame, *, unit: str = "minute") -> DataFrame:
    """One row per stream, scope, page and `unit` (minute, hour or day) in the column `time`."""
    keys = ["app", "env", "stream", "scope", "page", "time"]
    timed = partials.withColumn("time", F.date_trunc(unit, F.col("minute_time")))
    numbers = timed.groupBy(*keys).agg(
        *(F.sum(name).alias(name) for name in _ADDED), *(_merged_sketch(name) for name in _SKETCHES)
    )
    merged = numbers.select(*keys, *_ADDED, _score().alias("apdex"), *_percentiles())
    for name in (*_ADDED_MAPS, "maxima"):
        merged = merged.join(_merged_map(timed, keys, name), keys, "left")
    return merged


def _merged_map(partials: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
    combine = F.max if name == "maxima" else F.sum
    entries = partials.select(*keys, F.explode(name).alias("name", "number"))
    added = entries.groupBy(*keys, "name").agg(combine("number").alias("number"))
    return added.groupBy(*keys).agg(F.map_from_entries(F.collect_list(F.struct("name", "number"))).alias(name))


def _merged_sketch(name: str) -> Column:
    return F.kll_merge_agg_double(f"{name}_sketch").alias(f"{name}_sketch")


def _score() -> Column:
    return (F.col("apdex_satisfied") + F.col("apdex_tolerating") / 2) / F.col("count")


def _percentiles() -> list[Column]:
    return [
        F.when(
            F.kll_sketch_get_n_double(f"{name}_sketch") > 0,
            F.kll_sketch_get_quantile_double(f"{name}_sketch", F.lit(rank)),
        ).alias(f"{name}_{label}")
        for name in _SKETCHES
        for label, rank in QUANTILES.items()
    ]
