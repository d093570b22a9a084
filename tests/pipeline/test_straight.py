"""A backfill, which parses where it reads, and the live query, which lets Spark judge, make the same tables."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for, rows

from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig
from headrace.records.batch import Codec
from headrace.records.record import NewRecord

SCHEMA = "id BIGINT NOT NULL, name STRING, price DOUBLE, count INT, is_paid BOOLEAN, at TIMESTAMP"
AT = "2026-01-01T10:00:00Z"
ODD = [
    None,
    b"",
    b"not json",
    b"[1]",
    b"\xff\xfe",
    b'{"id": 1, "at": "2026-01-01T10:00:00Z", "name": "\xff"}',
    b'  {"id": 2, "at": "2026-01-01 10:00:00"}  ',
    b'{"id": "3", "at": "2026-01-01T10:00:00Z"}',
    b'{"id": 4.0, "at": "2026-01-01T10:00:00Z"}',
    b'{"id": 5, "at": "2026-01-01T10:00:00Z", "name": 12}',
    b'{"id": 6, "at": "2026-01-01T10:00:00Z", "name": {"first": "A"}}',
    b'{"id": 7, "at": "2026-01-01T10:00:00Z", "price": "NaN"}',
    b'{"id": 8, "at": "2026-01-01T10:00:00Z", "price": 1e999}',
    b'{"id": 9, "id": 10, "at": "2026-01-01T10:00:00Z"}',
    b'{"id": 11}',
    b'{"id": 12, "at": "2026-02-30T10:00:00Z"}',
    b'{"id": 13, "at": "+12026-01-01T10:00:00Z"}',
    b'{"id": 14, "at": "2026-01-01T10:00:00.123456789Z"}',
    b'{"id": 15, "at": 1767261600}',
    b'{"id": 16,\n"at": "2026-01-01T10:00:00+05:30"}',
    b"{'id': 17, 'at': '2026-01-01T10:00:00Z'}",
    b'{"id": 18, "at": "2026-01-01T10:00:00Z"}{"id": 19}',
    b'{"id": 20, "at": "2026-01-01T10:00:00Z", "count": 3000000000}',
    b'{"price": 1, "at": "2026-01-01T10:00:00Z"}',
]


def plain(number: int) -> bytes:
    document = {
        "id": number,
        "name": f'name \u00e9 "{number}"',
        "price": number / 7,
        "count": -number,
        "is_paid": number % 2 == 0,
        "at": f"2026-01-0{1 + number % 3}T10:00:00.{number:06d}Z" if number % 5 else AT,
        "unknown": {"deep": [number, None]},
    }
    return json.dumps(document, ensure_ascii=bool(number % 2)).encode()


def values() -> list[bytes | None]:
    """Plain ones in the majority, an odd one now and then."""
    found: list[bytes | None] = [plain(number) for number in range(500)]
    for index, odd in enumerate(ODD):
        found.insert(11 + 19 * index, odd)
    return found


def silver(bucket: LocalBucket, directory: Path) -> PipelineConfig:
    settings: dict[str, object] = {
        "kind": "silver",
        "subscribe": "orders",
        "table": "silver.orders",
        "schema": SCHEMA,
        "event_time": "at",
    }
    return config_for(bucket, directory, {"orders": settings})


def backfill(spark: SparkSession, config: PipelineConfig) -> int:
    landing = make_landing("orders", config.pipeline("orders"))
    tables = open_tables(config)
    bind_tables(landing, tables)
    job = Backfill(spark, config, landing, Wanted())
    return sum(job.land(piece) for piece in job.pieces(tables.open("silver.orders").coverage()))


def landed(spark: SparkSession, config: PipelineConfig) -> tuple[list[str], list[str]]:
    """As text, in which not-a-number is itself."""
    typed = rows(spark, config, "silver.orders").orderBy("_topic_partition", "_offset").collect()
    dead = (
        rows(spark, config, "silver.orders_dead_letters").drop("failed_time").orderBy("partition", "offset").collect()
    )
    return [str(row) for row in typed], [str(row) for row in dead]


@pytest.mark.slow
def test_a_backfill_and_the_live_query_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path / "bucket")
    bucket.create_topic("orders", 2)
    for partition, codec in ((0, Codec.LZ4), (1, Codec.NONE)):
        records = [
            NewRecord(key=b"k", value=value, timestamp_ms=1_767_261_600_000 + i, headers=(("h", b"v"),))
            for i, value in enumerate(values())
        ]
        bucket.append("orders", partition, records, codec=codec)
    live, filled = silver(bucket, tmp_path / "live"), silver(bucket, tmp_path / "filled")
    catch_up(spark, live, "orders")
    count = backfill(spark, filled)
    expected_rows, expected_dead = landed(spark, live)
    found_rows, found_dead = landed(spark, filled)
    assert len(expected_dead) >= len(ODD)  # half of the odd ones, in two partitions
    assert found_dead == expected_dead
    assert found_rows == expected_rows
    assert count == len(expected_rows)
    assert len(expected_rows) + len(expected_dead) == 2 * len(values())
    assert backfill(spark, filled) == 0
