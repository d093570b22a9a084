"""`format("headrace")` with `table`: what Spark's calls give, without Spark in between."""

import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNull, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tests.support.metastores import ManualClock
from tests.support.warehouse import append, create_table, delete_positions, warehouse

from headrace.errors import Conflict, NotFound, UnsupportedOperation
from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.source.spark import HeadraceSource
from headrace.pipeline.table_source.options import parse_table_options
from headrace.pipeline.tables.filters import expressions
from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.maintenance import expire_snapshots, file_groups
from headrace.pipeline.tables.positions import pack
from headrace.pipeline.tables.retention import Retention
from headrace.pipeline.tables.rewrites import Rewriting
from headrace.pipeline.tables.scanning import live_files, plan_files

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "ratio", DoubleType()),
)
SPEC = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))
FIRST_DAY = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return warehouse(tmp_path)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    table = create_table(catalog, "silver.orders", SCHEMA, spec=SPEC)
    for day in range(3):
        append(table, orders(day))
    return table


def orders(day: int, count: int = 2) -> pa.Table:
    rows = [
        {"id": 10 * day + n, "name": f"n{n}", "at": FIRST_DAY + timedelta(days=day), "ratio": 0.5} for n in range(count)
    ]
    arrow = [("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC")), ("ratio", pa.float64())]
    return pa.Table.from_pylist(rows, schema=pa.schema(arrow))


def options(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"table": "silver.orders", "warehouse": str(tmp_path / "warehouse"), **more}


def source(tmp_path: Path, **more: str) -> HeadraceSource:
    return HeadraceSource(options(tmp_path, **more))


# Readers are Spark's classes, which have no types.
def rows(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """As executors read them: what they are sent has been pickled."""
    sent = pickle.loads(pickle.dumps(list(partitions)))
    return [row for partition in sent for batch in reader.read(partition) for row in batch.to_pylist()]


def ids(found: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in found)


def test_a_batch_gives_the_rows_that_deletes_have_left(table: Table, tmp_path: Path) -> None:
    delete_positions(table, live_files(table)[0], [0])
    made = source(tmp_path)
    assert made.schema().simpleString() == "struct<id:bigint,name:string,at:timestamp,ratio:double>"
    reader = made.reader(made.schema())
    found = rows(reader, reader.partitions())
    assert len(found) == 5
    assert set(found[0]) == {"id", "name", "at", "ratio"}


def test_only_the_columns_of_the_given_schema_are_read(table: Table, tmp_path: Path) -> None:
    reader = source(tmp_path).reader(StructType.fromJson(source(tmp_path).schema().jsonValue()))
    wide = rows(reader, reader.partitions())
    narrow_schema = StructType([source(tmp_path).schema()["id"]])
    narrow = source(tmp_path).reader(narrow_schema)
    assert rows(narrow, narrow.partitions()) == [{"id": row["id"]} for row in wide]
    wrong = StructType([source(tmp_path).schema()["name"]])
    wrong.fields[0].name = "surname"
    with pytest.raises(InvalidOption, match="column surname string is not one of the table's"):
        source(tmp_path).reader(wrong)


@pytest.mark.parametrize(
    ("filters", "files"),
    [
        ([], 3),
        ([EqualTo(("id",), 11)], 1),
        ([GreaterThanOrEqual(("at",), FIRST_DAY + timedelta(days=1))], 2),
        ([GreaterThanOrEqual(("at",), FIRST_DAY), LessThan(("at",), FIRST_DAY + timedelta(days=1))], 1),
        ([In(("id",), (0, 21))], 2),
        ([IsNull(("id",))], 0),
        ([EqualTo(("at",), date(2026, 1, 1))], 3),
        ([EqualTo(("ratio",), 7.0)], 3),
        ([EqualTo(("name", "first"), "x")], 3),
    ],
)
def test_files_are_left_out_by_partition_and_statistics(
    table: Table, tmp_path: Path, filters: list[Filter], files: int
) -> None:
    made = source(tmp_path, filterPushdown="true")
    reader = made.reader(made.schema())
    assert list(reader.pushFilters(filters)) == filters, "Spark looks at every row again"
    assert sum(len(partition.tasks) for partition in reader.partitions()) == files


def test_values_that_do_not_belong_to_a_column_leave_nothing_out() -> None:
    strange: list[Filter] = [EqualTo(("id",), "1"), EqualTo(("id",), True), EqualTo(("nobody",), 1)]
    assert list(expressions(strange, SCHEMA)) == []


def test_a_read_of_the_past_and_one_of_a_past_that_is_gone(table: Table, tmp_path: Path) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    made = source(tmp_path, snapshotId=str(first))
    reader = made.reader(made.schema())
    assert ids(rows(reader, reader.partitions())) == [0, 1]
    gone = source(tmp_path, snapshotId="7")
    with pytest.raises(NotFound, match=r"silver\.orders has no snapshot 7"):
        gone.reader(gone.schema()).partitions()


def streamed(reader: Any, start: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    end = reader.latestOffset(start, ReadAllAvailable())
    return ids(rows(reader, reader.partitions(start, end))), end


def test_a_stream_gives_what_is_there_and_then_what_is_appended(table: Table, tmp_path: Path) -> None:
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    found, end = streamed(reader, reader.initialOffset())
    assert found == [0, 1, 10, 11, 20, 21]
    assert streamed(reader, end) == ([], end)
    append(table, orders(3))
    compact_all(table)
    append(table, orders(4))
    found, end = streamed(pickle.loads(pickle.dumps(reader)), end)
    assert found == [30, 31, 40, 41], "files that were only rewritten are passed over"


def compact_all(table: Table) -> None:
    append(table, orders(0, 0))
    table.refresh()
    ours = IcebergTable(table, ManualClock(0))
    groups = file_groups(plan_files(table), size_target=2**30, is_closed=lambda _: True)
    rewriting = Rewriting(table)
    files = [data_file for group in groups for data_file in rewriting.rewrite(group)]
    tasks = [task for group in groups for task in group]
    ours.replace(rewriting.written(files), removed=tasks, is_rewrite=True)


def test_a_stream_may_begin_at_the_end_and_stops_at_its_target(table: Table, tmp_path: Path) -> None:
    made = source(tmp_path, startingSnapshot="latest")
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    append(table, orders(3))
    reader.prepareForTriggerAvailableNow()
    append(table, orders(4))
    assert streamed(reader, start)[0] == [30, 31]


def test_a_stream_stops_at_rows_that_were_deleted_unless_told_to_go_on(table: Table, tmp_path: Path) -> None:
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    _, end = streamed(reader, reader.initialOffset())
    table.delete("id = 10")
    table.refresh()
    append(table, orders(3))
    with pytest.raises(UnsupportedOperation, match=r"changed or deleted rows.*skipChangeCommits=true"):
        streamed(reader, end)
    made = source(tmp_path, skipChangeCommits="true")
    assert streamed(made.streamReader(made.schema()), end)[0] == [30, 31]


def test_a_stream_whose_place_was_expired_says_so(table: Table, tmp_path: Path) -> None:
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    _, end = streamed(reader, reader.initialOffset())
    for day in (3, 4, 5):
        append(table, orders(day))
    expire_snapshots(table, now_ms=2**50, retention=Retention(count=1), is_due=True)
    with pytest.raises(NotFound, match=r"snapshot \d+ is no longer kept.*upkeep.snapshots_kept"):
        streamed(reader, end)


def test_a_stream_of_a_table_that_was_created_again_says_so(table: Table, catalog: Catalog, tmp_path: Path) -> None:
    made = source(tmp_path)
    reader = made.streamReader(made.schema())
    _, end = streamed(reader, reader.initialOffset())
    catalog.drop_table("silver.orders")
    append(create_table(catalog, "silver.orders", SCHEMA, spec=SPEC), orders(0))
    with pytest.raises(Conflict, match="dropped and created again"):
        streamed(reader, end)


def test_small_files_share_a_task_and_large_ones_do_not(table: Table) -> None:
    tasks = plan_files(table)
    size = max(task.file.file_size_in_bytes for task in tasks)
    assert [len(part) for part in pack(tasks, bytes_max=2 * size)] == [2, 1]
    assert [len(part) for part in pack(tasks, bytes_max=1)] == [1, 1, 1]
    assert pack([]) == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"table": "orders"}, "is not namespace.table"),
        ({"tabel": "x"}, "unknown option tabel.*table"),
        ({"catalog.token": "s3cret"}, "catalog.token would put a secret"),
        ({"snapshotId": "yesterday"}, "snapshotid must be a whole number"),
        ({"startingSnapshot": "latest"}, "has a meaning in streams only"),
        ({"filterPushdown": "perhaps"}, "filterpushdown is true or false"),
    ],
)
def test_options_that_cannot_be_meant_are_named(tmp_path: Path, given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        parse_table_options({**options(tmp_path), **given}, is_stream=False)


def test_the_warehouse_is_that_of_the_pipelines_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_PIPELINE", raising=False)
    with pytest.raises(InvalidOption, match=r"there is no headrace.yml or .*headrace.yml here"):
        parse_table_options({"table": "a.b"}, is_stream=False)
    (tmp_path / "headrace.yml").write_text("warehouse: {path: lake}")
    assert parse_table_options({"table": "a.b"}, is_stream=False).warehouse.path == str(tmp_path / "lake")
    (tmp_path / "other.yml").write_text("warehouse: {path: pond}")
    monkeypatch.setenv("HEADRACE_PIPELINE", "other.yml")
    assert parse_table_options({"table": "a.b"}, is_stream=False).warehouse.path == str(tmp_path / "pond")
    catalog = parse_table_options({"table": "a.b", "catalog.type": "rest", "catalog.token": "${T}"}, is_stream=False)
    assert catalog.warehouse.catalog == {"type": "rest", "token": "${T}"}
