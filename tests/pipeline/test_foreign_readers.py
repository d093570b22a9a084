"""Readers that are not ours read every table we write, row by row the same: DuckDB, and Spark with Iceberg's own runtime."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.test_bronze import Tomorrow
from tests.pipeline.test_logjam import message
from tests.support.bucket import LocalBucket
from tests.support.foreign_spark import foreign_spark
from tests.support.pipelines import catch_up, config_for, table
from tests.support.warehouse import rows_of, warehouse

from headrace.bench.errors import RivalUnavailable
from headrace.clock import SystemClock
from headrace.errors import UnsupportedOperation
from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.quality import check_all
from headrace.pipeline.jobs.replay import Replayed, replay_dead_letters
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.settings import PipelineConfig, UpkeepSettings
from headrace.pipeline.tables.scanning import check_writable, live_files, plan_files
from headrace.records.record import NewRecord

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SESSION = """
import json, sys
from pyspark.sql import SparkSession

jars, catalog, *names = sys.argv[1:]
prefix = "spark.sql.catalog.headrace"
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config(prefix, "org.apache.iceberg.spark.SparkCatalog")
    .config(f"{prefix}.catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
    .config(f"{prefix}.jdbc.schema-version", "V1")
    .config(f"{prefix}.uri", f"jdbc:sqlite:{catalog}").config(f"{prefix}.warehouse", "unused")
    .getOrCreate()
)
"""
READ = (
    SESSION
    + """
found = {}
for name in names:
    rows = spark.table(f"headrace.{name}")
    found[name] = sorted(row[0] for row in rows.selectExpr("to_json(struct(*))").collect())
print(json.dumps({"version": spark.version, "rows": found}))
"""
)
CHANGE = (
    SESSION
    + """
for statement in names:
    spark.sql(statement).collect()
"""
)
ORDERS_CHANGED = (
    "ALTER TABLE headrace.silver.orders SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "ALTER TABLE headrace.silver.orders RENAME COLUMN tags TO labels",
    "ALTER TABLE headrace.silver.orders RENAME COLUMN extra.b TO c",
    "ALTER TABLE headrace.silver.orders ALTER COLUMN extra.a TYPE BIGINT",
    "ALTER TABLE headrace.silver.orders ALTER COLUMN price TYPE DECIMAL(12,2)",
    "ALTER TABLE headrace.silver.orders DROP COLUMN at",
    "ALTER TABLE headrace.silver.orders CREATE TAG audit",
    "CALL headrace.system.compute_table_stats('silver.orders')",
    "DELETE FROM headrace.silver.orders WHERE id % 7 = 3",
    "ALTER TABLE headrace.bronze.records SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "DELETE FROM headrace.bronze.records WHERE offset % 5 = 1",
    "ALTER TABLE headrace.silver.orders_dead_letters SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "DELETE FROM headrace.silver.orders_dead_letters WHERE offset % 20 = 9 AND partition = 0",
)


ORDERS: dict[str, object] = {
    "kind": "silver",
    "subscribe": "orders",
    "table": "silver.orders",
    "schema": "id BIGINT NOT NULL, at TIMESTAMP, price DECIMAL(9,2), tags ARRAY<STRING>",
    "event_time": "at",
}
PIPELINES: dict[str, dict[str, object]] = {
    "bronze": {"kind": "bronze", "subscribePattern": ".*"},
    "loose": {"kind": "silver", "subscribe": "orders", "table": "silver.loose", "promote": {"n": {"path": "$.id"}}},
    "logjam": {"kind": "logjam_minute", "subscribePattern": "logjam-.*"},
}


def fill(spark: SparkSession, bucket: LocalBucket, tmp_path: Path, *, is_compacted: bool = True) -> PipelineConfig:
    """Every kind of table, with every type of column, in several commits, one of them a compaction, one a new column."""
    bucket.create_topic("orders", 2)
    bucket.create_topic("logjam-shop-prod")
    config = config_for(bucket, tmp_path, {})
    for start, extra in ((0, ""), (30, ", extra STRUCT<a: INT, b: STRING>")):
        for partition in range(2):
            bucket.append("orders", partition, [order(number) for number in range(start, start + 30)])
        bodies = (message(start), message(start + 1, total_time=9999), message(start + 2, started_at=None))
        bucket.append("logjam-shop-prod", 0, [request(body) for body in bodies])
        pipelines = {**PIPELINES, "orders": {**ORDERS, "schema": f"{ORDERS['schema']}{extra}"}}
        config = config_for(bucket, tmp_path, pipelines)
        for name in pipelines:
            catch_up(spark, config, name)
    if is_compacted:
        assert compact(spark, table(config, "silver.orders"), Tomorrow()).files_after > 0
    check_all(spark, config, SystemClock())
    return config


def order(number: int) -> NewRecord:
    body = {"id": number, "at": f"2026-0{1 + number % 3}-01T10:00:00Z", "price": 1.25, "tags": ["a", None, "ü"]}
    if number % 2:
        body["extra"] = {"a": number, "b": "x"}
    value = b"poison" if number % 10 == 9 else json.dumps(body).encode()
    return NewRecord(key=None, value=value, headers=(("h", None), ("h", b"\x00\xff")), timestamp_ms=1_767_000_000_123)


def request(made: tuple[Any, ...]) -> NewRecord:
    return NewRecord(key=made[0], value=made[1], headers=(("app-env", b"shop-prod"),), timestamp_ms=1)


def ours(spark: SparkSession, config: PipelineConfig, name: str) -> list[str]:
    frame = table(config, name).read(spark)
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())


def test_duckdb_reads_every_table(spark: SparkSession, bucket: LocalBucket, tmp_path: Path) -> None:
    config = fill(spark, bucket, tmp_path)
    names = open_tables(config).names()
    assert len(names) == 9
    same_for_duckdb(config, names)


def same_for_duckdb(config: PipelineConfig, names: Sequence[str]) -> None:
    """Files as DuckDB reads them, by their columns' names, hold what pyiceberg finds in the table. None is deleted from."""
    for name in names:
        handle = table(config, name).handle
        paths = [unquote(urlparse(data_file.file_path).path) for data_file in live_files(handle)]
        found = duckdb.sql(f"SELECT * FROM read_parquet({paths!r}, union_by_name = true)").arrow().read_all()
        expected = handle.scan().to_arrow()
        assert found.num_rows == expected.num_rows > 0, name
        for column in expected.column_names:
            if column not in found.column_names:
                assert expected[column].null_count == expected.num_rows, f"{name}.{column}"
                continue
            same_type = found[column].cast(expected[column].type)
            left, right = (sorted(map(repr, each.to_pylist())) for each in (same_type, expected[column]))
            assert left == right, f"{name}.{column}"


def test_spark_with_icebergs_own_runtime_reads_every_table(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    try:
        foreign = foreign_spark()
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    config = fill(spark, bucket, tmp_path)
    names = open_tables(config).names()
    catalog = str(Path(config.warehouse.path) / "catalog.db")
    answer = json.loads(foreign.run(READ, catalog, *names).splitlines()[-1])
    assert answer["version"].startswith("4.1.")
    assert answer["rows"] == {name: ours(spark, config, name) for name in names}
    assert all(answer["rows"].values())


def test_what_another_spark_changed_our_jobs_leave_as_it_is(
    spark: SparkSession, bucket: LocalBucket, tmp_path: Path
) -> None:
    """Renames, drops, promotions, row deletes, a tag and statistics by Iceberg's own runtime; then everything of ours that
    rewrites or forgets; then that runtime, pyiceberg and our own source look again."""
    try:
        foreign = foreign_spark()
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    config = fill(spark, bucket, tmp_path, is_compacted=False)
    catalog = str(Path(config.warehouse.path) / "catalog.db")
    names = ("silver.orders", "silver.orders_dead_letters", "bronze.records")
    foreign.run(CHANGE, catalog, *ORDERS_CHANGED)

    def theirs() -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads(foreign.run(READ, catalog, *names).splitlines()[-1])["rows"]
        return found

    before = theirs()
    assert before == {name: ours(spark, config, name) for name in names}, "we read it as they do"
    assert any(task.delete_files for task in plan_files(table(config, "silver.orders").handle))
    strict = msgspec.structs.replace(config, upkeep=UpkeepSettings(snapshots_kept=1))
    for name in names:
        done = compact(spark, table(strict, name), Tomorrow(), orphan_age_ms=0)
        assert done.files_after < done.files_before
        assert done.snapshots_expired > 0
        assert not any(task.delete_files for task in plan_files(table(config, name).handle))
    assert theirs() == before
    same_for_duckdb(config, names)
    handle = table(config, "silver.orders").handle
    assert handle.scan(snapshot_id=handle.metadata.refs["audit"].snapshot_id).to_arrow().num_rows == 108
    (statistics,) = handle.metadata.statistics  # Of the tagged snapshot; with others their statistics go.
    assert Path(unquote(urlparse(statistics.statistics_path).path)).exists()
    source = spark.read.format("headrace").options(table="silver.orders", warehouse=config.warehouse.path).load()
    assert sorted(row[0] for row in source.selectExpr("to_json(struct(*))").collect()) == before["silver.orders"]

    # The letters are still poison, and one of each four was deleted; the range made anew brings back what it must.
    silver = make_landing("orders", config.pipeline("orders"))
    assert isinstance(silver, Silver)
    bind_tables(silver, open_tables(config))
    orders, dead = table(config, "silver.orders"), table(config, "silver.orders_dead_letters")
    letters = len(before["silver.orders_dead_letters"])
    assert replay_dead_letters(spark, silver, orders, dead, SystemClock()) == Replayed(accepted=0, still_dead=letters)
    wanted = Wanted(startingOffsets='{"orders": {"0": 0, "1": 0}}', endingOffsets='{"orders": {"0": 30, "1": 30}}')
    Backfill(spark, config, silver, wanted).replace()
    after = theirs()
    assert after == {name: ours(spark, config, name) for name in names}
    old = [json.loads(row) for row in before["silver.orders"] if json.loads(row)["_offset"] >= 30]
    new = [json.loads(row) for row in after["silver.orders"] if json.loads(row)["_offset"] >= 30]
    assert new == old, "outside the range nothing changed, deleted rows included"
    made = sorted(json.loads(row)["id"] for row in after["silver.orders"] if json.loads(row)["_offset"] < 30)
    assert made == sorted(2 * [number for number in range(30) if number % 10 != 9])


def test_deletion_vectors_of_a_newer_table_are_read_and_the_table_is_left_alone(tmp_path: Path) -> None:
    """Format version 3: pyiceberg reads it and cannot write it."""
    try:
        foreign = foreign_spark()
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    catalog = warehouse(tmp_path)
    catalog.create_namespace("t")
    foreign.run(
        CHANGE,
        str(tmp_path / "warehouse" / "catalog.db"),
        f"""CREATE TABLE headrace.t.newer (id BIGINT, lines ARRAY<STRUCT<n: INT>>) USING iceberg
            LOCATION 'file://{tmp_path}/newer'
            TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')""",
        "INSERT INTO headrace.t.newer SELECT id, IF(id % 2 = 0, NULL, array(named_struct('n', 1))) FROM range(0, 100, 1, 1)",
        "DELETE FROM headrace.t.newer WHERE id % 3 = 0",
        "DELETE FROM headrace.t.newer WHERE id < 10",
        "ALTER TABLE headrace.t.newer RENAME COLUMN lines TO items",
    )
    table = catalog.load_table("t.newer")
    assert any(task.delete_files for task in plan_files(table))
    left = [number for number in range(10, 100) if number % 3]
    expected = [{"id": number, "items": [{"n": 1}] if number % 2 else None} for number in left]
    assert sorted(rows_of(table), key=lambda row: int(row["id"])) == expected
    with pytest.raises(UnsupportedOperation, match="format version 3"):
        check_writable(table)
