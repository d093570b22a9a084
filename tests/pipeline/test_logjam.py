"""Logjam's minutes, requests and views, on literal messages."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for, rows

from headrace.pipeline.schemas import LOGJAM_MINUTE_DDL, LOGJAM_REQUEST_DDL, RECORD_DDL, parse_ddl
from headrace.pipeline.steps.logjam_interesting import to_interesting
from headrace.pipeline.steps.logjam_minutes import to_minutes
from headrace.pipeline.steps.logjam_requests import dead_requests, to_requests
from headrace.pipeline.steps.logjam_views import merge_minutes
from headrace.records.record import NewRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STARTED = "2026-03-01T11:59:30+01:00"


def message(offset: int = 0, *, routing: str = "logs.shop.prod", **fields: Any) -> tuple[Any, ...]:
    body = {
        "action": "Orders::Cart#show",
        "started_at": STARTED,
        "code": 200,
        "severity": 1,
        "total_time": 50,
        **fields,
    }
    kept = {name: value for name, value in body.items() if value is not None}
    headers = [("app-env", b"shop-prod")]
    return (routing.encode(), json.dumps(kept).encode(), "logjam-shop-prod", 0, offset, NOW, 0, headers)


def requests(spark: SparkSession, *messages: tuple[Any, ...]) -> DataFrame:
    return to_requests(spark.createDataFrame(list(messages), RECORD_DDL))


def minutes(spark: SparkSession, *messages: tuple[Any, ...]) -> DataFrame:
    return to_minutes(requests(spark, *messages), late_minutes=60, ingest_time=NOW)


def one(frame: DataFrame, **where: str) -> Row:
    for name, value in where.items():
        frame = frame.where(f"{name} = '{value}'")
    (row,) = frame.collect()
    return row


@pytest.mark.requirement("X2.9")
def test_pages_modules_codes_and_times_have_their_defaults(spark: SparkSession) -> None:
    found = requests(
        spark,
        message(0),
        message(1, action=None, code=None, total_time=0),
        message(2, action="Plain"),
        message(3, action="Orders#index", total_time=None),
    ).orderBy("offset")
    assert [(row.page, row.module, row.code, row.total_time) for row in found.collect()] == [
        ("Orders::Cart#show", "::Orders", 200, 50.0),
        ("Unknown#unknown_method", "::Unknown", 500, 1.0),
        ("Plain#unknown_method", "::Plain", 200, 50.0),
        ("Orders#index", "::Orders", 200, 1.0),
    ]


@pytest.mark.requirement("X2.1")
def test_severity_falls_back_to_the_worst_line(spark: SparkSession) -> None:
    found = requests(
        spark,
        message(0, severity=None, lines=[[1, "t", "a"], [3, "t", "b"]]),
        message(1, severity=None),
        message(2, severity=9),
    ).orderBy("offset")
    assert [row.severity for row in found.collect()] == [3, 1, 5]


def test_the_minute_is_the_one_the_sender_wrote(spark: SparkSession) -> None:
    row = one(requests(spark, message(0)))
    assert (str(row.day), row.minute) == ("2026-03-01", 11 * 60 + 59)
    assert row.started_time.astimezone(UTC) == datetime(2026, 3, 1, 10, 59, 30, tzinfo=UTC)


@pytest.mark.requirement("X2.8")
def test_minutes_have_counts_sums_squares_maxima_and_buckets_for_three_scopes(spark: SparkSession) -> None:
    frame = minutes(
        spark,
        message(
            0, total_time=50, db_time=10, db_calls=2, exceptions=["E"], caller_id="web-prod-1", caller_action="A#b"
        ),
        message(1, total_time=300, db_time=30, code=500, severity=3),
        message(2, action="Orders::Cart#add", total_time=1500),
        message(3, action="Users#show", total_time=5000),
    )
    assert frame.schema.simpleString() == parse_ddl(LOGJAM_MINUTE_DDL).simpleString()
    page = one(frame, scope="page", page="Orders::Cart#show")
    assert page["count"] == 2
    assert page.sums == {"total_time": 350.0, "db_time": 40.0, "db_calls": 2.0}
    assert page.squares["db_time"] == 1000.0
    assert page.maxima["total_time"] == 300.0
    assert page.responses == {"200": 1, "500": 1}
    assert page.severities == {"1": 1, "3": 1}
    assert page.exceptions == {"E": 1}
    assert page.callers == {"web-A#b": 1}
    assert page.heatmap == {"100": 1, "300": 1}
    everything = one(frame, scope="all_pages")
    assert everything["count"] == 4
    assert (
        everything.apdex_happy,
        everything.apdex_satisfied,
        everything.apdex_tolerating,
        everything.apdex_frustrated,
    ) == (1, 2, 1, 1)
    assert one(frame, scope="module", page="::Orders")["count"] == 3


@pytest.mark.requirement("X2.8")
def test_the_browser_has_limits_and_clocks_of_its_own(spark: SparkSession) -> None:
    frame = minutes(
        spark,
        message(0, routing="frontend.page.shop.prod", total_time=400),
        message(1, routing="frontend.ajax.shop.prod", total_time=7000),
    )
    everything = one(frame, scope="all_pages")
    assert (everything.apdex_happy, everything.apdex_tolerating) == (1, 1)
    assert (everything.sums["page_time"], everything.sums["ajax_time"]) == (400.0, 7000.0)


def test_late_requests_are_aggregated_and_counted(spark: SparkSession) -> None:
    everything = one(
        minutes(spark, message(0), message(1, started_at="2026-03-01T05:00:00Z")), scope="all_pages", minute="300"
    )
    assert (everything["count"], everything.late_count) == (1, 1)


@pytest.mark.slow
@pytest.mark.requirement("X2.11")
def test_views_merge_partials_of_different_batches(spark: SparkSession) -> None:
    first = minutes(spark, *(message(i, total_time=i) for i in range(1, 500)))
    second = minutes(spark, *(message(i, total_time=i, code=404) for i in range(500, 1001)))
    row = one(merge_minutes(first.union(second), unit="hour"), scope="all_pages")
    assert row["count"] == 1000
    assert row.responses == {"200": 499, "404": 501}
    assert row.maxima["total_time"] == 1000.0
    assert row.apdex == pytest.approx((499 + 501 / 2) / 1000)
    assert row.total_time_p50 == pytest.approx(500, rel=0.05)
    assert row.total_time_p99 == pytest.approx(990, rel=0.05)
    assert row.page_time_p50 is None


@pytest.mark.requirement("X2.10")
def test_interesting_requests_are_kept_whole(spark: SparkSession) -> None:
    frame = to_interesting(
        requests(
            spark,
            message(0),
            message(1, total_time=2000),
            message(2, severity=2),
            message(3, code=503, exceptions=["Boom"]),
            message(4, code=404, request_id="a" * 32),
        ),
        import_threshold_ms=1000,
        sampled_400s_percent=100,
    )
    assert frame.schema.simpleString() == parse_ddl(LOGJAM_REQUEST_DDL).simpleString()
    assert {row._offset: row.reasons for row in frame.collect()} == {
        1: ["slow"],
        2: ["severity 2"],
        3: ["server error", "exceptions"],
        4: ["sampled client error"],
    }


def test_what_is_no_request_is_dead_with_the_reason(spark: SparkSession) -> None:
    broken = (b"logs", b"nonsense", "logjam-shop-prod", 0, 9, NOW, 0, [("app-env", b"shop-prod")])
    found = dead_requests(requests(spark, message(0, started_at=None), broken), NOW)
    assert {row.offset: row.reason for row in found.collect()} == {0: "no started_at", 9: "not a JSON object"}


def test_the_pipeline_fills_its_three_tables_once(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    bucket.create_topic("logjam-shop-prod")
    config = config_for(bucket, tmp_path, {"logjam_minute": {"kind": "logjam_minute", "subscribePattern": "logjam-.*"}})
    bodies = [
        NewRecord(key=bytes(m[0]), value=bytes(m[1]), headers=(("app-env", b"shop-prod"),), timestamp_ms=1)
        for m in (message(0), message(1, total_time=9999), message(2, started_at=None))
    ]
    bucket.append("logjam-shop-prod", 0, bodies)
    catch_up(spark, config, "logjam_minute")
    catch_up(spark, config, "logjam_minute")
    assert one(rows(spark, config, "logjam.minutes"), scope="all_pages")["count"] == 2
    assert rows(spark, config, "logjam.requests").count() == 1
    assert rows(spark, config, "logjam.dead_letters").count() == 1
