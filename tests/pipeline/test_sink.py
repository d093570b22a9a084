"""The sink: columns as Spark's Kafka sink has them, one transaction per micro-batch, nothing sent twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket, records
from tests.support.node import NodeProcess
from tests.support.pipelines import create_topic, patiently, read_committed

from headrace.pipeline.sink.options import parse_sink_options
from headrace.pipeline.sink.rows import OutgoingRecord
from headrace.pipeline.sink.transaction import BatchTransaction, ForeignMarker


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "node").start()
    create_topic(node.kafka, "out", 2)
    try:
        yield node
    finally:
        node.stop()


def committed(node: NodeProcess, topic: str = "out", partitions: int = 2) -> list[tuple[bytes | None, bytes]]:
    """What a reader of committed records sees."""
    messages = read_committed(node.kafka, topic, partitions)
    return sorted(((message.key(), message.value()) for message in messages), key=_by_key)


def stream(spark: SparkSession, bucket: LocalBucket, node: NodeProcess, checkpoint: Path) -> None:
    patiently(lambda: stream_once(spark, bucket, node, checkpoint))


def stream_once(spark: SparkSession, bucket: LocalBucket, node: NodeProcess, checkpoint: Path) -> None:
    query = (
        spark.readStream.format("headrace")
        .options(bucket=bucket.url, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
        .select("key", "value")
        .writeStream.format("headrace")
        .options(**{"kafka.bootstrap.servers": node.kafka, "topic": "out", "applicationId": "copy"})
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.slow
def test_a_stream_copies_every_record_once_even_when_its_last_batch_is_repeated(
    spark: SparkSession, bucket: LocalBucket, node: NodeProcess, tmp_path: Path
) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    expected = sorted(((record.key, record.value) for record in records(100)), key=_by_key)
    stream(spark, bucket, node, tmp_path / "c")
    assert committed(node) == expected
    # As if the driver had died after the transaction and before Spark noted it: the last batch runs again.
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    stream(spark, bucket, node, tmp_path / "c")
    assert committed(node) == expected
    # A new checkpoint is a new query, and the numbers of its batches say nothing about what was sent.
    with pytest.raises(StreamingQueryException, match="applicationId copy belongs to another query"):
        stream(spark, bucket, node, tmp_path / "new")
    assert committed(node) == expected


def test_a_batch_goes_out_whole_with_text_topics_partitions_and_headers(spark: SparkSession, node: NodeProcess) -> None:
    rows = [("a", "1", 1, [("h", b"x")]), (None, "2", 0, None)]
    frame = spark.createDataFrame(
        rows, "key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    options = {"kafka.bootstrap.servers": node.kafka, "topic": "out"}
    frame.write.format("headrace").options(**options).mode("append").save()
    assert committed(node) == sorted([(None, b"2"), (b"a", b"1")], key=_by_key)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [("'x' AS value, 1 AS price", "not price"), ("'k' AS key", "named value")],
)
def test_wrong_columns_are_refused(spark: SparkSession, node: NodeProcess, columns: str, complaint: str) -> None:
    frame = spark.sql(f"SELECT {columns}")
    with pytest.raises(Exception, match=complaint):
        frame.write.format("headrace").options(**{"kafka.bootstrap.servers": node.kafka, "topic": "out"}).mode(
            "append"
        ).save()


def test_a_batch_that_was_sent_is_not_sent_again_by_another_driver(node: NodeProcess) -> None:
    options = parse_sink_options(
        {"kafka.bootstrap.servers": node.kafka, "topic": "out", "applicationId": "app"}, is_stream=True
    )
    batch = [OutgoingRecord(topic="out", key=b"k", value=b"v%d" % i, partition=0, headers=[]) for i in range(5)]
    first, second = BatchTransaction(options), BatchTransaction(options)
    assert first.send(batch, batch=0, query="q")
    assert not second.send(batch, batch=0, query="q")
    assert second.send(batch[:1], batch=1, query="q")
    second.close()
    first.close()
    assert len(committed(node)) == 6


def test_the_marker_of_another_query_is_an_error_that_names_the_way_on(node: NodeProcess) -> None:
    options = parse_sink_options(
        {"kafka.bootstrap.servers": node.kafka, "topic": "out", "applicationId": "app"}, is_stream=True
    )
    batch = [OutgoingRecord(topic="out", key=b"k", value=b"v", partition=0, headers=[])]
    transaction = BatchTransaction(options)
    for number in range(3):
        assert transaction.send(batch, batch=number, query="old")
    for number in (0, 2, 3):
        with pytest.raises(ForeignMarker, match="headrace group delete app"):
            transaction.send(batch, batch=number, query="new")
    transaction.close()
    assert len(committed(node)) == 3


@pytest.mark.parametrize(("last", "batch", "is_sent"), [(4, 4, False), (4, 5, True), (4, 0, None), (0, 0, None)])
def test_a_marker_without_a_name_is_ours_only_where_it_can_be_nobody_elses(
    node: NodeProcess, last: int, batch: int, is_sent: bool | None
) -> None:
    """As earlier versions wrote it."""
    options = parse_sink_options(
        {"kafka.bootstrap.servers": node.kafka, "topic": "out", "applicationId": "app"}, is_stream=True
    )
    rows = [OutgoingRecord(topic="out", key=b"k", value=b"v", partition=0, headers=[])]
    transaction = BatchTransaction(options)
    assert transaction.send(rows, batch=last, query="")
    if is_sent is None:
        with pytest.raises(ForeignMarker, match="earlier version"):
            transaction.send(rows, batch=batch, query="q")
    else:
        assert transaction.send(rows, batch=batch, query="q") is is_sent
    transaction.close()


def _by_key(pair: tuple[bytes | None, bytes | None]) -> tuple[bytes, bytes]:
    return pair[0] or b"", pair[1] or b""
