"""Logjam's messages as requests: names, times and severities brought into the form the aggregates need (X2.1, X2.9).

- Page: `Unknown#unknown_method` when there is none; a name without `#` gets `#unknown_method`.
- Module: `::` and what stands before the first `:` or `#` of the page.
- Code 500 when missing; total time 1 ms when missing or zero; severity from the worst line, else 1.
- The minute is 60 * HH + MM of `started_at` as it is written: a day is the sender's day.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.steps.ranges import END_MS, FIRST_MS, is_absurd, timestamp_columns

DEFAULT_PAGE: Final = "Unknown#unknown_method"
DEFAULT_METHOD: Final = "#unknown_method"
DEFAULT_CODE: Final = 500
DEFAULT_SEVERITY: Final = 1
SEVERITY_MAX: Final = 5
TOTAL_TIME_MIN_MS: Final = 1.0
_STARTED_AT: Final = r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}):(\d{2})"
_METRIC: Final = "_(time|calls)$"


def to_requests(records: DataFrame) -> DataFrame:
    """RECORD_DDL to one row per message, with `reason` and `detail` set where it cannot be aggregated.

    Gives app, env, stream, kind, fields, page, module, code, severity, total_time, metrics, exceptions, caller,
    started_time, day, minute, minute_time, and the record's own columns.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    stream = F.coalesce(_header("app-env"), F.regexp_replace("topic", "^logjam-", ""))
    fields = records.select(
        "*",
        F.from_json(text, "MAP<STRING, STRING>").alias("fields"),
        stream.alias("stream"),
        _kind(F.make_valid_utf8(F.col("key").cast("string"))).alias("kind"),
    )
    named = fields.select(
        "*",
        F.regexp_extract("stream", "^(.*)-([^-]+)$", 1).alias("app"),
        F.regexp_extract("stream", "^(.*)-([^-]+)$", 2).alias("env"),
        _page().alias("page"),
        F.coalesce(_field("code").try_cast("int"), F.lit(DEFAULT_CODE)).alias("code"),
        _severity().alias("severity"),
        _total_time().alias("total_time"),
        F.array_compact(F.from_json(_field("exceptions"), "ARRAY<STRING>")).alias("exceptions"),
        F.nullif(_field("caller_action"), F.lit("")).alias("caller"),
        _started_time().alias("started_time"),
    )
    timed = named.select("*", *_minute(), _module().alias("module"), _metrics().alias("metrics"))
    return timed.select("*", _reason().alias("reason"), F.substring(text, 1, 500).alias("detail"))


def dead_requests(requests: DataFrame, failed_time: datetime) -> DataFrame:
    """DEAD_LETTER_DDL of what could not be read."""
    names = ("topic", "partition", "offset", "key", "value", "headers", "reason", "detail")
    return requests.where("reason IS NOT NULL").select(
        *names, *timestamp_columns(), F.lit(failed_time).cast("timestamp").alias("failed_time")
    )


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.make_valid_utf8(F.try_element_at(found, F.lit(1))["value"].cast("string"))


def _field(name: str) -> Column:
    return F.col("fields")[name]


def _kind(routing: Column) -> Column:
    """Which clock the message carries: the backend's, the browser's page load, or its ajax calls."""
    return (
        F.when(routing.startswith("frontend.page"), "page")
        .when(routing.startswith("frontend.ajax"), "ajax")
        .when(routing.startswith("logs") | routing.isNull(), "logs")
        .otherwise("other")
    )


def _page() -> Column:
    action = F.coalesce(_field("action"), _field("logjam_action"), F.lit(""))
    return (
        F.when(F.trim(action) == "", DEFAULT_PAGE)
        .when(action.contains("#"), action)
        .otherwise(F.concat(action, F.lit(DEFAULT_METHOD)))
    )


def _module() -> Column:
    return F.concat(F.lit("::"), F.regexp_extract("page", "^([^:#]*)", 1))


def _severity() -> Column:
    lines = F.from_json(_field("lines"), "ARRAY<ARRAY<STRING>>")
    worst = F.array_max(F.transform(lines, lambda line: F.try_element_at(line, F.lit(1)).try_cast("int")))
    severity = F.coalesce(_field("severity").try_cast("int"), worst, F.lit(DEFAULT_SEVERITY))
    return F.greatest(F.lit(0), F.least(F.lit(SEVERITY_MAX), severity))


def _total_time() -> Column:
    given = F.coalesce(_field("total_time"), _field("page_time"), _field("ajax_time")).try_cast("double")
    return F.when(given.isNull() | F.isnan(given) | (given <= 0), F.lit(TOTAL_TIME_MIN_MS)).otherwise(given)


def _started_time() -> Column:
    started_ms = _field("started_ms").try_cast("bigint")
    # Spark fails on milliseconds that do not fit its microseconds.
    from_ms = F.timestamp_millis(F.when((started_ms >= FIRST_MS) & (started_ms < END_MS), started_ms))
    return F.coalesce(_field("started_at").try_cast("timestamp"), from_ms)


def _minute() -> list[Column]:
    """Day and minute as `started_at` spells them, or those of `started_ms` in UTC."""
    spelled = _field("started_at")
    day = F.coalesce(
        F.nullif(F.regexp_extract(spelled, _STARTED_AT, 1), F.lit("")), F.date_format("started_time", "yyyy-MM-dd")
    )
    hour = F.coalesce(F.regexp_extract(spelled, _STARTED_AT, 2).try_cast("int"), F.hour("started_time"))
    minute = F.coalesce(F.regexp_extract(spelled, _STARTED_AT, 3).try_cast("int"), F.minute("started_time"))
    moment = F.concat(day, F.format_string(" %02d:%02d:00", hour, minute)).try_cast("timestamp")
    return [
        day.try_cast("date").alias("day"),
        (hour * 60 + minute).alias("minute"),
        moment.alias("minute_time"),
    ]


def _metrics() -> Column:
    """Every `*_time` and `*_calls` that is a number, the total always among them."""
    given = F.map_filter("fields", lambda name, value: name.rlike(_METRIC) & value.try_cast("double").isNotNull())
    numbers = F.transform_values(given, lambda _, value: value.try_cast("double"))
    others = F.map_filter(numbers, lambda name, _: name != "total_time")
    return F.map_concat(others, F.create_map(F.lit("total_time"), F.col("total_time")))


def _reason() -> Column:
    return (
        F.when(F.col("value").isNull(), "no value")
        .when(F.col("fields").isNull(), "not a JSON object")
        .when(F.col("env") == "", "no stream")
        .when(F.col("minute_time").isNull(), "no started_at")
        .when(is_absurd(F.col("minute_time")) | is_absurd(F.col("started_time")), "absurd started_at")
    )
