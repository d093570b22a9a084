"""The stream reader as Spark calls it, without Spark: a real bucket, and a clock in the test's hands."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.support.bucket import LocalBucket, records
from tests.support.metastores import ManualClock

from headrace.pipeline.source.readers import StreamReader, make_stream_reader

ALL = ReadAllAvailable()


@pytest.fixture
def bucket(tmp_path: Path) -> LocalBucket:
    bucket = LocalBucket(tmp_path)
    bucket.create_topic("orders")
    return bucket


def reader_of(bucket: LocalBucket, clock: ManualClock, **options: str) -> StreamReader:
    given = {"bucket": bucket.url, "subscribe": "orders", "startingOffsets": "earliest", **options}
    reader = make_stream_reader(given, ("value",))
    reader._clock = clock
    return reader


def end(position: dict[str, Any]) -> int:
    found: int = position["orders"]["0"]
    return found


def test_a_batch_waits_for_enough_records_but_not_for_ever(bucket: LocalBucket) -> None:
    clock = ManualClock(1_000_000)
    reader = reader_of(bucket, clock, minOffsetsPerTrigger="100", maxTriggerDelay="60s", maxOffsetsPerTrigger="120")
    limit = ReadMaxRows(120)
    start = reader.initialOffset()
    bucket.append("orders", 0, records(10))
    first = reader.latestOffset(start, limit)
    assert end(first) == 10, "the first is never held back"
    bucket.append("orders", 0, records(50))
    assert reader.latestOffset(first, limit) == first
    assert end(reader.reportLatestOffset() or {}) == 60, "what waits is told all the same"
    bucket.append("orders", 0, records(150))
    second = reader.latestOffset(first, limit)
    assert end(second) == 130, "enough, and no more than may be"
    assert reader.latestOffset(second, limit) == second
    clock.advance(59_999)
    assert reader.latestOffset(second, limit) == second
    clock.advance(1)
    assert end(reader.latestOffset(second, limit)) == 210


def test_a_run_until_caught_up_waits_for_nobody(bucket: LocalBucket) -> None:
    clock = ManualClock(1_000_000)
    reader = reader_of(bucket, clock, minOffsetsPerTrigger="100")
    start = reader.initialOffset()
    bucket.append("orders", 0, records(10))
    first = reader.latestOffset(start, ALL)
    bucket.append("orders", 0, records(10))
    reader.prepareForTriggerAvailableNow()
    assert end(reader.latestOffset(first, ALL)) == 20
