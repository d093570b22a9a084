"""`format("headrace")` in Spark: batch, stream, options, pruning, and its limits."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.bucket import LocalBucket, records
from tests.support.pipelines import patiently

from headrace.records.batch import Codec
from headrace.records.builder import build_batch, build_gap
from headrace.records.record import NewRecord


def read(spark: SparkSession, bucket: LocalBucket, **options: str) -> DataFrame:
    given = {"bucket": bucket.url, "subscribe": "orders", **options}
    return spark.read.format("headrace").options(**given).load()


def stream(spark: SparkSession, bucket: LocalBucket, checkpoint: Path, **options: str) -> list[dict[str, Any]]:
    """Everything that is there now; gives the progress of each micro-batch."""
    given = {"bucket": bucket.url, "subscribe": "orders", "startingOffsets": "earliest", **options}
    return patiently(lambda: stream_once(spark, given, checkpoint))


def stream_once(spark: SparkSession, given: dict[str, str], checkpoint: Path) -> list[dict[str, Any]]:
    seen: list[int] = []
    query = (
        spark.readStream.format("headrace")
        .options(**given)
        .load()
        .writeStream.foreachBatch(lambda frame, _: seen.append(frame.count()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    # A batch that only steps over lost offsets has no rows, and no progress to show.
    return [{"rows": rows, **progress} for rows, progress in zip(filter(None, seen), _progress(query), strict=True)]


def _progress(query: Any) -> list[dict[str, Any]]:
    return [
        {"end": entry.sources[0].endOffset, "latest": entry.sources[0].latestOffset}
        for entry in query.recentProgress
        if entry.numInputRows
    ]


@pytest.mark.requirement("R3.116")
def test_a_batch_reads_every_record_with_the_schema_of_sparks_kafka_source(
    spark: SparkSession, bucket: LocalBucket
) -> None:
    bucket.create_topic("orders", 2)
    for partition in range(2):
        bucket.append("orders", partition, records(300), codec=Codec.ZSTD)
    frame = read(spark, bucket)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    rows = frame.select("partition", "offset", "value").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(p, o) for p in range(2) for o in range(300)]
    assert bytes(rows[7].value).startswith(b"value-7-")


def test_headers_come_when_asked_for_and_columns_go_when_not(spark: SparkSession, bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, [NewRecord(value=b"x", headers=(("a", b"1"), ("b", None)), timestamp_ms=5)])
    row = read(spark, bucket, includeHeaders="true").first()
    assert row is not None
    assert [(header.key, header.value) for header in row.headers] == [("a", b"1"), ("b", None)]
    narrow = (
        spark.read.format("headrace")
        .schema("offset BIGINT, value BINARY")
        .options(bucket=bucket.url, subscribe="orders")
        .load()
    )
    assert [tuple(row) for row in narrow.collect()] == [(0, b"x")]
    with pytest.raises(Exception, match="not one of the source's"):
        spark.read.format("headrace").schema("price DOUBLE").options(
            bucket=bucket.url, subscribe="orders"
        ).load().count()


def test_filters_prune_what_is_read_and_change_no_result(spark: SparkSession, bucket: LocalBucket) -> None:
    bucket.create_topic("orders", 2)
    for partition in range(2):
        bucket.append("orders", partition, records(100))
    frame = read(spark, bucket, filterPushdown="true").where("partition = 1 and offset >= 90 and offset < 95")
    assert sorted(row.offset for row in frame.collect()) == [90, 91, 92, 93, 94]


def test_an_empty_topic_gives_no_rows(spark: SparkSession, bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    assert read(spark, bucket).count() == 0


def test_a_stream_goes_on_where_it_stopped_and_respects_its_limit(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    bucket.create_topic("orders", 2)
    bucket.append("orders", 0, records(250))
    bucket.append("orders", 1, records(50))
    first = stream(spark, bucket, tmp_path / "c", maxOffsetsPerTrigger="120")
    assert [batch["rows"] for batch in first] == [120, 120, 60]
    assert '"orders": {"0": 250, "1": 50}' in first[-1]["end"]
    assert '"0": 250' in first[0]["latest"], "lag is the difference to the latest offset"
    bucket.append("orders", 1, records(5))
    assert [batch["rows"] for batch in stream(spark, bucket, tmp_path / "c")] == [5]
    assert stream(spark, bucket, tmp_path / "c") == []


def test_lost_offsets_are_passed_by_bounded_reads_and_limited_streams(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    """What a lost disk leaves behind: an object of its own with an empty batch, and one inside an object of records."""
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    bucket.append_batches("orders", 0, [build_gap(1 << 28)])
    bucket.append_batches(
        "orders", 0, [build_batch(records(50), now_ms=0), build_gap(1 << 16), build_batch(records(50), now_ms=0)]
    )
    assert read(spark, bucket).count() == 200
    assert read(spark, bucket, minPartitions="4").count() == 200
    progress = stream(spark, bucket, tmp_path / "checkpoint", maxOffsetsPerTrigger="60")
    assert sum(each["rows"] for each in progress) == 200
    assert len(progress) <= 8


def test_a_stream_follows_a_topic_that_grows(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    assert [batch["rows"] for batch in stream(spark, bucket, tmp_path / "c")] == [10]
    bucket.grow_topic("orders", 3)
    bucket.append("orders", 2, records(7))
    assert [batch["rows"] for batch in stream(spark, bucket, tmp_path / "c")] == [7]


def test_a_recreated_topic_fails_the_stream_loudly_unless_loss_is_no_matter(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    stream(spark, bucket, tmp_path / "c")
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(30))
    with pytest.raises(Exception, match="deleted and created again"):
        stream(spark, bucket, tmp_path / "c")
    assert [batch["rows"] for batch in stream(spark, bucket, tmp_path / "c", failOnDataLoss="false")] == [30]


def test_retention_that_overtook_a_stream(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    stream(spark, bucket, tmp_path / "c")
    bucket.append("orders", 0, records(10))
    bucket.append("orders", 0, records(10))
    bucket.delete_before("orders", 0, 20)
    with pytest.raises(Exception, match="deleted before they were read"):
        stream(spark, bucket, tmp_path / "c")
    assert [batch["rows"] for batch in stream(spark, bucket, tmp_path / "c", failOnDataLoss="false")] == [10]
