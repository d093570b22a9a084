"""Tables that other engines change between and during our own jobs. The other engine is pyiceberg by itself here, which is
quick; `test_foreign_readers.py` has Spark with Iceberg's own runtime."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.test_bronze import Tomorrow
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for, patiently, table
from tests.support.warehouse import delete_positions

from headrace.clock import SystemClock
from headrace.pipeline import failpoints
from headrace.pipeline.failpoints import VARIABLE
from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.replay import replay_dead_letters
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig
from headrace.pipeline.tables.scanning import live_files
from headrace.records.record import NewRecord

ORDERS: dict[str, object] = {"kind": "silver", "subscribe": "orders", "table": "silver.orders"}
DEAD = "silver.orders_dead_letters"


def configured(bucket: LocalBucket, tmp_path: Path, schema: str) -> PipelineConfig:
    return config_for(bucket, tmp_path, {"orders": {**ORDERS, "schema": schema}})


def produce(bucket: LocalBucket, *bodies: dict[str, object]) -> None:
    bucket.append("orders", 0, [NewRecord(value=json.dumps(body).encode(), timestamp_ms=1) for body in bodies])


def bound(config: PipelineConfig) -> Silver:
    silver = make_landing("orders", config.pipeline("orders"))
    assert isinstance(silver, Silver)
    bind_tables(silver, open_tables(config))
    return silver


def offsets(spark: SparkSession, config: PipelineConfig, name: str, column: str) -> list[int]:
    return sorted(row[0] for row in table(config, name).read(spark, [column]).collect())


@contextmanager
def failing(place: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(failpoints, "_seen", {})
    monkeypatch.setenv(VARIABLE, f"{place}:1:raise")
    with pytest.raises(Exception, match="failpoint"):
        yield
    monkeypatch.delenv(VARIABLE)


@pytest.mark.slow
def test_compaction_of_a_table_that_another_engine_renamed_promoted_and_deleted_from(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    config = configured(bucket, tmp_path, "id INT, name STRING, place STRUCT<zip: INT>")
    bucket.create_topic("orders")
    for start in (0, 10):
        produce(bucket, *({"id": n, "name": f"n{n}", "place": {"zip": n}} for n in range(start, start + 10)))
        catch_up(spark, config, "orders")
    orders = table(config, "silver.orders")
    with orders.handle.update_schema() as update:
        update.rename_column("name", "title")
        update.rename_column(("place", "zip"), "code")
    delete_positions(orders.handle, live_files(orders.handle)[0], [0, 4])
    orders.refresh()

    def found() -> list[tuple[int, str, int]]:
        orders.refresh()
        return sorted((row.id, row.title, row.place.code) for row in orders.read(spark).collect())

    before = found()
    assert len(before) == 18
    assert all(title == f"n{number}" and code == number for number, title, code in before)
    assert compact(spark, orders, Tomorrow()).files_after == 1
    assert found() == before
    # The pipeline goes on: what it calls `name` is a column of its own from now on, and BIGINT takes INT's place.
    wider = configured(bucket, tmp_path, "id BIGINT, name STRING, place STRUCT<zip: INT>")
    produce(bucket, {"id": 2**40, "name": "new", "place": {"zip": 5}})
    catch_up(spark, wider, "orders")
    orders.refresh()
    newest = orders.read(spark).where(f"id = {2**40}").collect()[0]
    assert (newest.name, newest.title, newest.place.zip, newest.place.code) == ("new", None, 5, None)
    assert found()[:-1] == before


@pytest.mark.slow
def test_an_interrupted_replay_whose_rules_and_files_changed_loses_and_doubles_nothing(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = configured(bucket, tmp_path, "a INT NOT NULL, b INT NOT NULL")
    bucket.create_topic("orders")
    produce(bucket, {"a": 1}, {"b": 2}, {}, {"a": 4, "b": 4})
    catch_up(spark, first, "orders")
    produce(bucket, {"a": 5})
    catch_up(spark, first, "orders")
    assert offsets(spark, first, DEAD, "offset") == [0, 1, 2, 4]
    # The first fix takes those with `a`; its replay dies when they have landed and are still among the dead letters.
    with failing("replay accepted", monkeypatch):
        one = configured(bucket, tmp_path, "a INT NOT NULL, b INT")
        replay_dead_letters(spark, bound(one), table(one, "silver.orders"), table(one, DEAD), SystemClock())
    # Meanwhile another engine deletes one letter, and the second fix would take all that are left.
    dead = table(first, DEAD)
    holder = next(data_file for data_file in live_files(dead.handle) if data_file.record_count == 3)
    delete_positions(dead.handle, holder, [2])
    two = configured(bucket, tmp_path, "a INT, b INT")
    done = replay_dead_letters(spark, bound(two), table(two, "silver.orders"), table(two, DEAD), SystemClock())
    assert (done.accepted, done.still_dead) == (1, 0)
    assert offsets(spark, two, "silver.orders", "_offset") == [0, 1, 3, 4]
    assert offsets(spark, two, DEAD, "offset") == []


@pytest.mark.slow
def test_rows_that_another_engine_put_or_deleted_survive_a_range_made_anew(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    config = configured(bucket, tmp_path, "id INT, name STRING")
    bucket.create_topic("orders")
    produce(bucket, *({"id": n, "name": f"n{n}"} for n in range(10)))
    catch_up(spark, config, "orders")
    orders = table(config, "silver.orders")
    # On the day of the others, and so in one file with them after a compaction; of no record.
    foreign = spark.sql("SELECT 100 AS id, 'theirs' AS name, timestamp_millis(5) AS _event_time")
    orders.commit(orders.write(foreign), token=None, covered=orders.coverage().minus(orders.coverage()))
    compact(spark, orders, Tomorrow())
    orders.refresh()
    (holder,) = live_files(orders.handle)
    delete_positions(orders.handle, holder, [1])
    orders.refresh()
    before = sorted((row._offset is None, row._offset, row.name) for row in orders.read(spark).collect())
    assert len(before) == 10
    wanted = Wanted(startingOffsets='{"orders": {"0": 8}}', endingOffsets='{"orders": {"0": 10}}')
    assert Backfill(spark, config, bound(config), wanted).replace() == 2
    orders.refresh()
    after = sorted((row._offset is None, row._offset, row.name) for row in orders.read(spark).collect())
    assert after == before


@pytest.mark.slow
def test_spark_reads_a_table_as_a_batch_and_as_a_stream(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    config = configured(bucket, tmp_path, "id INT, name STRING, at TIMESTAMP")
    bucket.create_topic("orders")

    def land(start: int) -> None:
        produce(
            bucket,
            *({"id": n, "name": f"n{n}", "at": f"2026-01-0{1 + n % 3}T10:00:00Z"} for n in range(start, start + 6)),
        )
        catch_up(spark, config, "orders")

    land(0)
    orders = table(config, "silver.orders")
    delete_positions(orders.handle, live_files(orders.handle)[0], [0])
    options = {"table": "silver.orders", "warehouse": config.warehouse.path}
    whole = spark.read.format("headrace").options(**options, filterPushdown="true").load()
    orders.refresh()
    assert sorted(whole.collect()) == sorted(orders.read(spark).collect())
    assert whole.where("id IN (1, 2) AND at >= TIMESTAMP '2026-01-02 00:00:00'").count() == 2
    narrow = spark.read.format("headrace").schema("id INT").options(**options).load()
    assert sorted(row.id for row in narrow.collect()) == [1, 2, 3, 4, 5]

    def streamed() -> list[int]:
        stream = spark.readStream.format("headrace").options(**options).load().select("id")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        patiently(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination())
        return sorted(row.id for row in spark.read.schema("id INT").parquet(str(tmp_path / "out")).collect())

    assert streamed() == [1, 2, 3, 4, 5]
    land(6)
    compact(spark, table(config, "silver.orders"), Tomorrow())
    assert streamed() == list(range(1, 12))
