"""Iceberg tables: exactly once, whoever else commits; columns checked; foreign readers."""

import time
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.metastores import ManualClock

from headrace.clock import SystemClock
from headrace.errors import Conflict, Invalid
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.quality import freshness
from headrace.pipeline.schemas import parse_ddl
from headrace.pipeline.tables import maintenance
from headrace.pipeline.tables.catalog import WarehouseSettings, open_catalog
from headrace.pipeline.tables.committing import append_once
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.pipeline.tables.iceberg import COVERED, IcebergTable, IcebergTables
from headrace.pipeline.tables.lease import Lease
from headrace.pipeline.tables.port import (
    ColumnMismatch,
    CommitToken,
    LeaseHeld,
    PartitionField,
    TableChanged,
    TableDefinition,
)
from headrace.pipeline.tables.retention import Retention

DDL = "id BIGINT, name STRING, time TIMESTAMP"


@pytest.fixture
def tables(tmp_path: Path) -> IcebergTables:
    return IcebergTables(open_catalog(WarehouseSettings(path=str(tmp_path / "warehouse"))))


def definition(ddl: str = DDL, *, name: str = "test.rows", partitioned: bool = True) -> TableDefinition:
    partitioning = (PartitionField("hour", "time"),) if partitioned else ()
    return TableDefinition(name=name, schema=parse_ddl(ddl), partitioning=partitioning)


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).selectExpr(
        "id", "concat('n', id) AS name", "timestamp_seconds(1700000000 + id * 1200) AS time"
    )


def covering(start: int, end: int) -> Coverage:
    return Coverage({PartitionId("topic-id", 0): [Range(start, end)]})


def append(spark: SparkSession, table: IcebergTable, batch: int, start: int, end: int, *, writer: str = "p:1") -> int:
    def make_frame(offsets: Coverage) -> DataFrame:
        frame = rows(spark, 0, 0)
        for parts in offsets.ranges.values():
            for part in parts:
                frame = frame.union(rows(spark, part.start, part.end))
        return frame

    return append_once(table, make_frame, token=CommitToken(writer, batch), covered=covering(start, end)).record_count


def ids(spark: SparkSession, table: IcebergTable) -> list[int]:
    table.refresh()
    return sorted(row.id for row in table.read(spark).select("id").collect())


def test_a_repeated_batch_changes_nothing(spark: SparkSession, tables: IcebergTables) -> None:
    table = tables.ensure(definition())
    assert append(spark, table, 0, 0, 10) == 10
    assert append(spark, table, 0, 0, 10) == 0
    assert append(spark, table, 1, 10, 15) == 5
    assert ids(spark, table) == list(range(15))
    assert table.coverage() == covering(0, 15)


def test_overlapping_offsets_are_written_once(spark: SparkSession, tables: IcebergTables) -> None:
    """A second pipeline, or a backfill, over offsets that are partly there."""
    table = tables.ensure(definition())
    append(spark, table, 0, 5, 10)
    assert append(spark, table, 0, 0, 20, writer="q:1") == 15
    assert ids(spark, table) == list(range(20))


def test_two_drivers_with_the_same_batch_land_it_once(spark: SparkSession, tables: IcebergTables) -> None:
    mine, other = tables.ensure(definition()), tables.ensure(definition())
    written = mine.write(rows(spark, 0, 10))
    token = CommitToken("p:1", 0)
    assert other.commit(other.write(rows(spark, 0, 10)), token=token, covered=covering(0, 10))
    assert not mine.commit(written, token=token, covered=covering(0, 10))
    assert ids(spark, mine) == list(range(10))


def test_another_writers_commit_in_between_is_no_conflict(spark: SparkSession, tables: IcebergTables) -> None:
    mine, other = tables.ensure(definition()), tables.ensure(definition())
    written = mine.write(rows(spark, 0, 5))
    append(spark, other, 0, 5, 10, writer="q:1")
    assert mine.commit(written, token=CommitToken("p:1", 0), covered=covering(0, 5))
    assert ids(spark, mine) == list(range(10))
    assert mine.coverage() == covering(0, 10)


def test_offsets_that_somebody_else_committed_meanwhile_are_not_committed_again(
    spark: SparkSession, tables: IcebergTables
) -> None:
    mine, other = tables.ensure(definition()), tables.ensure(definition())
    written = mine.write(rows(spark, 0, 8))
    append(spark, other, 0, 5, 10, writer="q:1")
    with pytest.raises(TableChanged, match="some of these offsets"):
        mine.commit(written, token=CommitToken("p:1", 0), covered=covering(0, 8))
    assert ids(spark, mine) == list(range(5, 10))


def test_files_written_for_an_older_schema_are_not_committed(spark: SparkSession, tables: IcebergTables) -> None:
    mine = tables.ensure(definition())
    written = mine.write(rows(spark, 0, 8))
    tables.ensure(definition(DDL + ", extra STRING"))
    with pytest.raises(TableChanged, match="schema or partitioning"):
        mine.commit(written, token=CommitToken("p:1", 0), covered=covering(0, 8))
    assert append(spark, mine, 0, 0, 8) == 8


def test_an_empty_batch_still_leaves_its_mark(spark: SparkSession, tables: IcebergTables) -> None:
    table = tables.ensure(definition())
    assert append(spark, table, 0, 0, 0) == 0
    table.refresh()
    assert table.has_committed(CommitToken("p:1", 0))
    assert len(table.handle.metadata.snapshots) == 1


def test_a_column_that_appears_is_added_and_older_rows_have_none(spark: SparkSession, tables: IcebergTables) -> None:
    append(spark, tables.ensure(definition()), 0, 0, 3)
    wider = tables.ensure(definition(DDL + ", price DOUBLE"))
    frame = rows(spark, 3, 5).selectExpr("*", "1.5D AS price")
    wider.commit(wider.write(frame), token=CommitToken("p:1", 1), covered=covering(3, 5))
    found = {row.id: row.price for row in wider.read(spark).collect()}
    assert found == {0: None, 1: None, 2: None, 3: 1.5, 4: 1.5}


def test_files_from_before_and_after_a_new_column_become_one(spark: SparkSession, tables: IcebergTables) -> None:
    append(spark, tables.ensure(definition(partitioned=False)), 0, 0, 3)
    wider = tables.ensure(definition(DDL + ", place STRUCT<city: STRING, tags: ARRAY<STRING>>", partitioned=False))
    frame = rows(spark, 3, 5).selectExpr("*", "named_struct('city', 'Rome', 'tags', array('a')) AS place")
    wider.commit(wider.write(frame), token=CommitToken("p:1", 1), covered=covering(3, 5))
    wider.refresh()
    before = sorted(map(str, wider.read(spark).collect()))
    done = compact(spark, wider, SystemClock())
    assert (done.files_before > 1, done.files_after) == (True, 1)
    wider.refresh()
    assert sorted(map(str, wider.read(spark).collect())) == before


def test_columns_that_do_not_fit_are_refused(spark: SparkSession, tables: IcebergTables) -> None:
    table = tables.ensure(definition())
    with pytest.raises(ColumnMismatch, match=r"unknown columns \['surprise'\]"):
        table.write(rows(spark, 0, 1).selectExpr("*", "1 AS surprise"))
    with pytest.raises(ColumnMismatch, match="id is string, not bigint"):
        table.write(rows(spark, 0, 1).selectExpr("string(id) AS id", "name", "time"))
    with pytest.raises(Invalid, match="_partition: Iceberg keeps these names for itself"):
        tables.ensure(definition("id BIGINT, time TIMESTAMP, _partition INT", name="test.reserved"))
    with pytest.raises(Conflict, match="give the pipeline a new table"):
        tables.ensure(definition("id STRING, name STRING, time TIMESTAMP"))


def test_rows_are_filed_by_their_partition_and_duckdb_reads_them(spark: SparkSession, tables: IcebergTables) -> None:
    table = tables.ensure(definition())
    append(spark, table, 0, 0, 12)
    files = table.handle.inspect.files().to_pylist()
    assert len({path["file_path"].split("/")[-2] for path in files}) == 4, "from 22:13 on, twenty minutes apart"
    paths = [entry["file_path"].removeprefix("file://") for entry in files]
    found = duckdb.sql(f"SELECT count(*), min(id), max(id) FROM read_parquet({paths!r})").fetchall()
    assert found == [(12, 0, 11)]


def test_the_same_pipeline_elsewhere_is_refused_while_it_lives(spark: SparkSession, tables: IcebergTables) -> None:
    table = tables.ensure(definition())
    append(spark, table, 0, 0, 5)
    import msgspec

    elsewhere = Lease(host="another-host", process_id=1, until_ms=2**60)
    with table.handle.transaction() as transaction:
        transaction.set_properties({"headrace.lease.p": msgspec.json.encode(elsewhere).decode()})
    with pytest.raises(LeaseHeld, match="already runs on another-host"):
        append(spark, table, 1, 5, 10)
    assert append(spark, table, 0, 5, 10, writer="q:1") == 5, "another pipeline has a lease of its own"


def test_metadata_stays_bounded_over_many_commits(spark: SparkSession, tmp_path: Path) -> None:
    catalog = open_catalog(WarehouseSettings(path=str(tmp_path / "warehouse")))
    table = IcebergTables(catalog, retention=Retention(count=5)).ensure(definition(partitioned=False))
    for batch in range(30):
        written = table.write(rows(spark, 0, 0))
        table.commit(written, token=CommitToken("p:1", batch), covered=covering(batch, batch + 1))
    assert len(table.handle.metadata.snapshots) <= 16
    assert len(table.handle.metadata.metadata_log) <= 21
    assert table.handle.properties[COVERED] == covering(0, 30).format()
    assert maintenance.delete_orphans(table.handle, now_ms=2**60, age_ms=0) > 0
    location = Path(table.handle.location().removeprefix("file://"))
    assert len(list(location.rglob("*.avro"))) <= 2 * 16


def test_freshness_is_the_same_wherever_the_machine_is(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    landed = spark.sql("SELECT timestamp_millis(1700000000000) AS ingest_time")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        finding = freshness("bronze", "t", landed, "ingest_time", ManualClock(1_700_000_002_000))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (finding.value, finding.status) == (2.0, "ok")
