"""Requests to mergeable partials per minute: page, module and all pages (X2.8).

Nothing is finished here: every number can be added to, maximised with or merged into another partial of the same minute, so
late requests only add rows. `merge_minutes` in `logjam_views` does the adding.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ALL_PAGES: Final = "all_pages"
SKETCH_K: Final = 200
"""Good to p99; 2.6 KB each."""
BACKEND_LIMITS_MS: Final = (100.0, 500.0, 2_000.0)
FRONTEND_LIMITS_MS: Final = (500.0, 2_000.0, 8_000.0)
HEATMAP_BOUNDS_MS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
_SKETCHED: Final = ("total_time", "page_time", "ajax_time")
_DIMENSIONS: Final = ("app", "env", "stream", "day", "minute", "minute_time", "scope", "page")


def to_minutes(requests: DataFrame, *, late_minutes: int, ingest_time: datetime) -> DataFrame:
    """Requests (without a reason) to LOGJAM_MINUTE_DDL."""
    facts = requests.where("reason IS NULL").select(
        "app",
        "env",
        "stream",
        "day",
        "minute",
        "minute_time",
        F.explode(_scopes()).alias("scoped"),
        _facts(late_minutes).alias("facts"),
    )
    exploded = facts.select(
        *_DIMENSIONS[:-2],
        F.col("scoped.scope").alias("scope"),
        F.col("scoped.page").alias("page"),
        F.explode("facts").alias("fact"),
    ).select(*_DIMENSIONS, "fact.*")
    by_name = exploded.groupBy(*_DIMENSIONS, "kind", "name").agg(
        F.sum("number").alias("total"),
        F.sum(F.col("number") * F.col("number")).alias("squares"),
        F.max("number").alias("largest"),
        F.count("*").alias("times"),
        *(_sketch(name) for name in _SKETCHED),
    )
    return by_name.groupBy(*_DIMENSIONS).agg(
        _count("request").alias("count"),
        _map("metric", F.col("total")).alias("sums"),
        _map("metric", F.col("squares")).alias("squares"),
        _map("metric", F.col("largest")).alias("maxima"),
        _map("response", F.col("times")).alias("responses"),
        _map("severity", F.col("times")).alias("severities"),
        _map("exception", F.col("times")).alias("exceptions"),
        _map("caller", F.col("times")).alias("callers"),
        _map("heatmap", F.col("times")).alias("heatmap"),
        _count("apdex", "happy").alias("apdex_happy"),
        # The happy ones are satisfied too: the score is (satisfied + tolerating / 2) / count.
        (_count("apdex", "happy") + _count("apdex", "satisfied")).alias("apdex_satisfied"),
        _count("apdex", "tolerating").alias("apdex_tolerating"),
        _count("apdex", "frustrated").alias("apdex_frustrated"),
        *(F.max(F.when(_is_metric(name), F.col(f"{name}_sketch"))).alias(f"{name}_sketch") for name in _SKETCHED),
        _count("late").alias("late_count"),
        F.lit(ingest_time).cast("timestamp").alias("ingest_time"),
    )


def _scopes() -> Column:
    return F.array(
        _scope("page", F.col("page")), _scope("module", F.col("module")), _scope(ALL_PAGES, F.lit(ALL_PAGES))
    )


def _scope(scope: str, page: Column) -> Column:
    return F.struct(F.lit(scope).alias("scope"), page.alias("page"))


def _facts(late_minutes: int) -> Column:
    """All that is counted of one request, as (kind, name, number)."""
    metrics = F.transform(F.map_entries("metrics"), lambda entry: _fact("metric", entry["key"], entry["value"]))
    exceptions = F.transform(
        F.coalesce("exceptions", F.array().cast("array<string>")), lambda name: _fact("exception", name)
    )
    caller = F.when(F.col("caller").isNull(), F.array().cast(_FACTS)).otherwise(
        F.array(_fact("caller", F.concat_ws("-", _application_of_caller(), F.col("caller"))))
    )
    # Added to the request's time, which is a usual one; the record's may be so far off that nothing can be taken from it.
    is_late = F.col("timestamp") > F.col("started_time") + F.expr(f"INTERVAL {int(late_minutes)} MINUTES")
    late = F.when(is_late, F.array(_fact("late", F.lit("late")))).otherwise(F.array().cast(_FACTS))
    single = F.array(
        _fact("request", F.lit("request")),
        _fact("response", F.col("code").cast("string")),
        _fact("severity", F.col("severity").cast("string")),
        _fact("apdex", _apdex()),
        _fact("heatmap", _bucket()),
    )
    return F.concat(single, metrics, exceptions, caller, late, _clock("page"), _clock("ajax"))


_FACTS: Final = "array<struct<kind: string, name: string, number: double>>"


def _fact(kind: str, name: Column, number: Column | None = None) -> Column:
    value = F.lit(None).cast("double") if number is None else number
    return F.struct(F.lit(kind).alias("kind"), name.alias("name"), value.alias("number"))


def _clock(kind: str) -> Column:
    """The browser's clock as a metric of its own, so that page and ajax times have sums and sketches."""
    name = f"{kind}_time"
    is_absent = F.col("metrics")[name].isNull()
    return F.when(
        (F.col("kind") == kind) & is_absent, F.array(_fact("metric", F.lit(name), F.col("total_time")))
    ).otherwise(F.array().cast(_FACTS))


def _application_of_caller() -> Column:
    """`caller_id` is `app-env-request`; its application says who called."""
    return F.nullif(F.regexp_extract(F.col("fields")["caller_id"], "^(.+)-[^-]+-[^-]+$", 1), F.lit(""))


def _apdex() -> Column:
    is_frontend = F.col("kind").isin("page", "ajax")
    limits = [
        F.when(is_frontend, frontend).otherwise(backend)
        for frontend, backend in zip(FRONTEND_LIMITS_MS, BACKEND_LIMITS_MS, strict=True)
    ]
    time = F.col("total_time")
    return (
        F.when(time < limits[0], "happy")
        .when(time < limits[1], "satisfied")
        .when(time < limits[2], "tolerating")
        .otherwise("frustrated")
    )


def _bucket() -> Column:
    bucket = F.lit("more")
    for bound in reversed(HEATMAP_BOUNDS_MS):
        bucket = F.when(F.col("total_time") <= bound, str(bound)).otherwise(bucket)
    return bucket


def _is_metric(name: str) -> Column:
    return (F.col("kind") == "metric") & (F.col("name") == name)


def _sketch(metric: str) -> Column:
    number = F.when(_is_metric(metric), F.col("number"))
    return F.kll_sketch_agg_double(number, F.lit(SKETCH_K)).alias(f"{metric}_sketch")


def _count(kind: str, name: str | None = None) -> Column:
    condition = F.col("kind") == kind
    if name is not None:
        condition = condition & (F.col("name") == name)
    return F.coalesce(F.sum(F.when(condition, F.col("times"))), F.lit(0))


def _map(kind: str, value: Column) -> Column:
    entry = F.when(F.col("kind") == kind, F.struct(F.col("name").alias("key"), value.alias("value")))
    return F.map_from_entries(F.collect_list(entry))
