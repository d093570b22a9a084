"""What may change under a pipeline: the topic, the schema, the log's objects, and the table beside it. No record is lost or
doubled, and what cannot be read is said, not skipped."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.pipeline.test_bronze import Tomorrow, fill
from tests.support.bucket import LocalBucket, records
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.pipelines import catch_up, config_for, create_topic, patiently, rows, table

from headrace.cli.commands.pipeline import reset
from headrace.errors import TopicNotFound
from headrace.pipeline.jobs.backfill import Wanted
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.queries import start_query
from headrace.pipeline.settings import PipelineConfig, parse_config
from headrace.pipeline.source.log import open_log
from headrace.pipeline.source.options import parse_options
from headrace.pipeline.tables.maintenance import DAY_MS
from headrace.pipeline.tables.scanning import live_files
from headrace.records.record import NewRecord

BRONZE: dict[str, object] = {"kind": "bronze", "subscribe": "orders", "maxOffsetsPerTrigger": 50, "trigger_seconds": 0}
TABLE = "bronze.records"


@pytest.fixture
def config(bucket: LocalBucket, tmp_path: Path) -> PipelineConfig:
    bucket.create_topic("orders", 2)
    return config_for(bucket, tmp_path, {"bronze": BRONZE})


def places(spark: SparkSession, config: PipelineConfig) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows(spark, config, TABLE).collect())


def everything(*counts: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


@pytest.mark.slow
def test_backfills_and_compaction_beside_a_live_query_that_never_pauses(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket
) -> None:
    for partition in range(2):
        bucket.append("orders", partition, records(600))
    failures: list[BaseException] = []

    def backfill_again_and_again() -> None:
        try:
            for end in (100, 300, 500, 600):
                fill(spark, config, Wanted(endingOffsets=f'{{"orders": {{"0": {end}, "1": {end // 2}}}}}'))
        except BaseException as error:
            failures.append(error)

    backfills = threading.Thread(target=backfill_again_and_again)
    with live_query(spark, config) as query:
        backfills.start()
        while backfills.is_alive() or table(config, TABLE).coverage().count() < 1200:
            assert query.isActive, query.exception()
            # For compaction it is tomorrow: it takes the files of the hour that the others are writing to. Their files are
            # orphans until they commit, and by its clock two days old.
            compact(spark, table(config, TABLE), Tomorrow(), orphan_age_ms=3 * DAY_MS)
            time.sleep(0.2)
        backfills.join()
    assert failures == []
    assert places(spark, config) == everything(600, 600)


def started(spark: SparkSession, config: PipelineConfig) -> StreamingQuery:
    """A query that has its worker, and so its first batch."""
    query = start_query(spark, config, "bronze")
    try:
        eventually(lambda: bool(query.recentProgress) or not query.isActive, 250, "no batch has landed")
    except AssertionError:
        query.stop()
        raise
    if not query.isActive:
        query.awaitTermination()  # Raises what it failed with, once it is no longer listed as active.
    return query


@contextmanager
def live_query(spark: SparkSession, config: PipelineConfig) -> Iterator[StreamingQuery]:
    query = patiently(lambda: started(spark, config))
    try:
        yield query
        while query.isActive and query.status["isTriggerActive"]:
            time.sleep(0.05)
    finally:
        query.stop()


@pytest.mark.slow
def test_partitions_that_are_added_join_from_their_first_record(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket
) -> None:
    bucket.append("orders", 0, records(10))
    catch_up(spark, config, "bronze")
    bucket.grow_topic("orders", 4)
    bucket.append("orders", 3, records(7))
    bucket.append("orders", 0, records(5, start=10))
    catch_up(spark, config, "bronze")
    assert places(spark, config) == [*everything(15), *((3, offset) for offset in range(7))]


@pytest.mark.slow
def test_a_recreated_topic_stops_the_pipeline_and_lands_beside_the_old_one_after_a_reset(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, tmp_path: Path
) -> None:
    bucket.append("orders", 0, records(10))
    catch_up(spark, config, "bronze")
    bucket.create_topic("orders", 2)
    bucket.append("orders", 0, records(4, start=100))
    with pytest.raises(Exception, match="deleted and created again"):
        catch_up(spark, config, "bronze")
    (tmp_path / "headrace.yml").write_text("pipelines: {bronze: {kind: bronze, subscribe: orders}}")
    reset("bronze", config=tmp_path / "headrace.yml", yes=True)
    catch_up(spark, config, "bronze")
    landed = sorted(bytes(row.key) for row in rows(spark, config, TABLE).collect())
    assert landed == sorted([b"k%d" % i for i in range(10)] + [b"k%d" % i for i in range(100, 104)])


@pytest.mark.slow
def test_a_damaged_object_stops_the_pipeline_and_nothing_is_skipped_once_it_is_whole_again(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket
) -> None:
    bucket.append("orders", 0, records(20))
    catch_up(spark, config, "bronze")
    bucket.append("orders", 0, records(20, start=20))
    bucket.append("orders", 1, records(20))
    damaged = bucket.object_paths()[1]
    whole = damaged.read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 1
    for broken, complaint in ((bytes(flipped), "orders-0"), (whole[: len(whole) // 2], "data/")):
        damaged.write_bytes(broken)
        with pytest.raises(Exception, match=complaint):
            catch_up(spark, config, "bronze")
        assert places(spark, config) == everything(20), "a batch with a hole must not land"
    damaged.write_bytes(whole)
    catch_up(spark, config, "bronze")
    assert places(spark, config) == everything(40, 20)


@pytest.mark.slow
def test_late_and_out_of_order_events_land_in_their_own_day(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    silver: dict[str, object] = {
        "kind": "silver",
        "subscribe": "orders",
        "table": "silver.orders",
        "schema": "at TIMESTAMP",
        "event_time": "at",
    }
    config = config_for(bucket, tmp_path, {"orders": silver})
    bucket.create_topic("orders")
    for arriving in ((5, 3, 9, 1), (1, 9, 2)):
        values = [b'{"at": "2026-02-0%dT23:59:59.999Z"}' % day for day in arriving]
        bucket.append("orders", 0, [NewRecord(value=value, timestamp_ms=1) for value in values])
        catch_up(spark, config, "orders")
    assert sorted(row.at.day for row in rows(spark, config, "silver.orders").collect()) == [1, 1, 2, 3, 5, 9, 9]
    days: Counter[str] = Counter()
    for data_file in live_files(table(config, "silver.orders").handle):
        days[data_file.file_path.split("/")[-2]] += data_file.record_count
    assert days == {f"_event_time_day=2026-02-0{day}": count for day, count in ((1, 2), (2, 1), (3, 1), (5, 1), (9, 2))}


@pytest.mark.slow
def test_a_column_that_appears_in_flight_is_filled_from_the_restart_on(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    """Producers are first, as always: the column is in the log before anybody told the pipeline."""
    silver: dict[str, object] = {"kind": "silver", "subscribe": "orders", "table": "silver.orders", "schema": "id INT"}
    bucket.create_topic("orders")
    old, new = (config_for(bucket, tmp_path, {"orders": {**silver, "schema": s}}) for s in ("id INT", "id INT, x INT"))
    for config, start in ((old, 0), (old, 2), (new, 4)):
        values = [b'{"id": %d, "x": %d}' % (i, 10 * i) if i > 1 else b'{"id": %d}' % i for i in range(start, start + 2)]
        bucket.append("orders", 0, [NewRecord(value=value, timestamp_ms=1) for value in values])
        catch_up(spark, config, "orders")

    def landed() -> list[tuple[int, int | None]]:
        return sorted((row.id, row.x) for row in rows(spark, new, "silver.orders").collect())

    assert landed() == [(0, None), (1, None), (2, None), (3, None), (4, 40), (5, 50)]


def uploaded_end(node: NodeProcess) -> int:
    options = {"bucket": str(node.data_dir / "objects"), "subscribe": "orders", "isolation.level": "read_uncommitted"}
    try:
        view = open_log(parse_options(options, is_stream=False)).view()
    except TopicNotFound:
        return 0  # The bucket learns of a topic with its first object.
    return sum(partition.end for partition in view.values())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "node", {"tier.upload.interval.ms": 200}) as node:
        yield node


@pytest.mark.slow
def test_aborted_transactions_stay_out_when_nothing_but_the_bucket_is_left(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    create_topic(node.kafka, "orders", 1)
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for copy in range(3):
            producer.produce("orders", value=b"%d-%d" % (number, copy))
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    eventually(lambda: uploaded_end(node) == 24, 60, "three records and a marker of each transaction in the bucket")
    assert node.stop() == 0
    everything = {**BRONZE, "table": "bronze.all", "isolation_level": "read_uncommitted"}
    source = {"bucket": str(node.data_dir / "objects")}
    config = parse_config({"source": source, "pipelines": {"bronze": BRONZE, "all": everything}}, base=tmp_path)
    catch_up(spark, config, "bronze")
    landed = sorted(bytes(row.value) for row in rows(spark, config, TABLE).collect())
    assert landed == [b"%d-%d" % (number, copy) for number in (0, 2, 4) for copy in range(3)]
    catch_up(spark, config, "all")
    assert rows(spark, config, "bronze.all").count() == 18
