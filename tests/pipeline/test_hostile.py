"""Whatever a producer sends: no query stops, every record is in exactly one place, and a backfill makes the same tables."""

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.bucket import LocalBucket
from tests.support.hostile import (
    ABSURD_TIMES_MS,
    TEXTS,
    TIMES_MS,
    every_fragment,
    hostile_records,
    unreadable_batches,
)
from tests.support.pipelines import catch_up, config_for, rows, table

from headrace.clock import SystemClock
from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.jobs.replay import replay_dead_letters
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig
from headrace.records.record import NewRecord

FLAT = "id BIGINT NOT NULL, s STRING, x DOUBLE, i INT, flag BOOLEAN, at TIMESTAMP"
NESTED = """
    id BIGINT NOT NULL, at TIMESTAMP, price DECIMAL(10, 2), day DATE, local TIMESTAMP_NTZ, f FLOAT, s STRING,
    tags ARRAY<STRUCT<at: TIMESTAMP, amount: DECIMAL(38, 10)>>, times MAP<STRING, TIMESTAMP>,
    deep STRUCT<a: STRUCT<b: ARRAY<DATE>>>
"""
COLUMNS = ["id", "at", "s", "x", "i", "flag", "price", "day", "local", "f", "tags", "times", "deep"]
LOGJAM = [
    "started_at",
    "started_ms",
    "total_time",
    "db_time",
    "exceptions",
    "code",
    "severity",
    "lines",
    "caller_action",
]
PIPELINES: dict[str, dict[str, object]] = {
    "flat": {"kind": "silver", "subscribe": "odd", "table": "silver.flat", "schema": FLAT, "event_time": "at"},
    "nested": {
        "kind": "silver",
        "subscribe": "odd",
        "table": "silver.nested",
        "schema": " ".join(NESTED.split()),
        "expectations": {
            "ratio": {"that": "id / price < 1000 OR price IS NULL", "otherwise": "drop"},
            "number": {"that": "CAST(s AS INT) > 0 OR s IS NULL", "otherwise": "warn"},
        },
    },
    "loose": {
        "kind": "silver",
        "subscribe": "odd",
        "table": "silver.loose",
        "promote": {"day": {"path": "$.day", "type": "DATE"}, "price": {"path": "$.price", "type": "DECIMAL(10,2)"}},
    },
}


def fill(bucket: LocalBucket, topic: str, records: list[NewRecord]) -> set[int]:
    """The offsets that must come out: each record's, and the first of every batch that cannot be read."""
    bucket.create_topic(topic)
    bucket.append(topic, 0, records)
    unreadable = unreadable_batches()
    bucket.append_batches(topic, 0, unreadable)
    return {*range(len(records)), *(len(records) + 3 * index for index in range(len(unreadable)))}


def stream_live(spark: SparkSession, config: PipelineConfig) -> None:
    for name in config.pipelines:
        catch_up(spark, config, name)


def land_backwards(spark: SparkSession, config: PipelineConfig) -> None:
    for name in config.pipelines:
        landing = make_landing(name, config.pipeline(name))
        bind_tables(landing, open_tables(config))
        backfill = Backfill(spark, config, landing, Wanted())
        for piece in backfill.pieces(table(config, config.pipeline(name).tables[0]).coverage()):
            backfill.land(piece)


def content(frame: DataFrame) -> list[str]:
    """Rows as text, but for the moment at which they were made."""
    kept = frame.drop("failed_time", "ingest_time")
    texts = kept.select([F.col(name).cast("string").alias(name) for name in kept.columns])
    return sorted(str(row) for row in texts.collect())


def check(spark: SparkSession, bucket: LocalBucket, directory: Path, offsets: set[int]) -> None:
    bronze: dict[str, dict[str, object]] = {"bronze": {"kind": "bronze", "subscribe": "odd"}}
    live, backfilled = (config_for(bucket, directory / name, bronze | PIPELINES) for name in ("live", "backfill"))
    stream_live(spark, live)
    land_backwards(spark, backfilled)
    landed = [row.offset for row in rows(spark, live, "bronze.records").select("offset").collect()]
    assert sorted(landed) == sorted(offsets)
    for name in [name for pipeline in live.pipelines.values() for name in pipeline.tables]:
        assert content(rows(spark, live, name)) == content(rows(spark, backfilled, name)), name
        assert table(live, name).handle.scan().to_arrow().num_rows == rows(spark, live, name).count()
    for name in PIPELINES:
        check_places(spark, live, name, offsets)
        before = [content(rows(spark, live, each)) for each in live.pipeline(name).tables]
        silver = make_landing(name, live.pipeline(name))
        assert isinstance(silver, Silver)
        good, dead = (table(live, each) for each in live.pipeline(name).tables)
        assert replay_dead_letters(spark, silver, good, dead, SystemClock()).accepted == 0
        assert [content(rows(spark, live, each)) for each in live.pipeline(name).tables] == before


def check_places(spark: SparkSession, config: PipelineConfig, name: str, offsets: set[int]) -> None:
    good, dead = config.pipeline(name).tables
    taken = [row._offset for row in rows(spark, config, good).select("_offset").collect()]
    letters = rows(spark, config, dead).select("offset", "reason", "detail").collect()
    refused = {row.offset: (row.reason, row.detail) for row in letters}
    assert sorted([*taken, *(row.offset for row in letters)]) == sorted(offsets)
    assert taken, "some of them fit"
    assert all(reason for reason, _ in refused.values())
    for offset in sorted(offsets)[-3:]:
        assert refused[offset][0] == "unreadable batch"
        assert refused[offset][1]


@pytest.mark.slow
def test_every_odd_value_in_every_column_lands_or_is_dead_with_a_reason(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    odd = [*every_fragment(COLUMNS), *TEXTS, None]
    times = [*TIMES_MS, *ABSURD_TIMES_MS]
    records = [NewRecord(value=value, timestamp_ms=times[i % len(times)]) for i, value in enumerate(odd)]
    check(spark, bucket, tmp_path, fill(bucket, "odd", records))


@pytest.mark.slow
@settings(max_examples=1, phases=[Phase.generate], deadline=None)
@given(records=st.lists(hostile_records(COLUMNS), min_size=200, max_size=300))
def test_whatever_is_sent_lands_or_is_dead_with_a_reason(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, records: list[NewRecord]
) -> None:
    directory = tmp_path_factory.mktemp("hostile")
    bucket = LocalBucket(directory / "objects")
    fits = NewRecord(value=b'{"id": 1, "at": "2026-01-01T10:00:00Z"}', timestamp_ms=1)
    check(spark, bucket, directory, fill(bucket, "odd", [fits, *records]))


def test_epoch_milliseconds_are_a_dead_letter_that_names_the_column(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    fill(bucket, "odd", [NewRecord(value=b'{"id": 1, "at": 1700000000000}', timestamp_ms=1)])
    config = config_for(bucket, tmp_path, {"nested": PIPELINES["nested"]})
    catch_up(spark, config, "nested")
    letter = rows(spark, config, "silver.nested_dead_letters").orderBy("offset").first()
    assert letter is not None
    assert (letter.reason, letter.detail) == ("value out of range", "at")


def test_a_timestamp_that_no_table_holds_lands_beside_its_column(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    times = [0, *ABSURD_TIMES_MS]
    fill(bucket, "odd", [NewRecord(value=b"v", timestamp_ms=time) for time in times])
    config = config_for(bucket, tmp_path, {"bronze": {"kind": "bronze", "subscribe": "odd"}})
    catch_up(spark, config, "bronze")
    landed = rows(spark, config, "bronze.records").where("value = 'v'").orderBy("offset").collect()
    limit = 9_223_372_036_854_775
    assert [row.timestamp_absurd_ms for row in landed] == [None, *(max(-limit, min(t, limit)) for t in ABSURD_TIMES_MS)]
    assert [row.timestamp is None for row in landed] == [False] + [True] * len(ABSURD_TIMES_MS)


@pytest.mark.slow
def test_odd_requests_of_logjam_are_counted_or_dead(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    odd = [*every_fragment(LOGJAM), *TEXTS, None]
    times = [*TIMES_MS, *ABSURD_TIMES_MS]
    records = [NewRecord(value=value, timestamp_ms=times[i % len(times)]) for i, value in enumerate(odd)]
    offsets = fill(bucket, "logjam-shop-production", records)
    config = config_for(bucket, tmp_path, {"minutes": {"kind": "logjam_minute", "subscribePattern": "logjam-.*"}})
    catch_up(spark, config, "minutes")
    counted = rows(spark, config, "logjam.minutes").where("scope = 'all_pages'").agg(F.sum("count")).first()
    assert counted is not None
    assert counted[0] > 0
    assert counted[0] + rows(spark, config, "logjam.dead_letters").count() == len(offsets)
