"""Partials put together: minutes, hours or days with their score and percentiles (X2.11)."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_COUNTING_MAPS: Final = ("responses", "severities", "exceptions", "callers", "heatmap")
_MAPS: Final = ("sums", "squares", "maxima", *_COUNTING_MAPS)
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
    scored = numbers.select(*keys, *_ADDED, _score().alias("apdex"), *_percentiles())
    return scored.join(_merged_maps(timed, keys), keys, "left")


def _merged_maps(partials: DataFrame, keys: Sequence[str]) -> DataFrame:
    """All maps in one pass: taken apart, added or maximised by name, put together again."""
    parts = F.concat(*(_entries(name) for name in _MAPS))
    entries = partials.select(*keys, F.explode(parts).alias("entry")).select(*keys, "entry.*")
    added = entries.groupBy(*keys, "map", "name").agg(F.sum("number").alias("sum"), F.max("number").alias("max"))
    return added.groupBy(*keys).agg(*(_collected(name).alias(name) for name in _MAPS))


def _entries(name: str) -> Column:
    return F.transform(
        F.map_entries(name),
        lambda entry: F.struct(
            F.lit(name).alias("map"), entry["key"].alias("name"), entry["value"].cast("double").alias("number")
        ),
    )


def _collected(name: str) -> Column:
    number = F.col("max") if name == "maxima" else F.col("sum")
    typed = number.cast("bigint") if name in _COUNTING_MAPS else number
    entry = F.when(F.col("map") == name, F.struct(F.col("name").alias("key"), typed.alias("value")))
    return F.map_from_entries(F.collect_list(entry))


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
