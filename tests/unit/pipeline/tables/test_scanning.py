"""Tables that other engines have changed are read, rewritten and replaced exactly, or refused before anything is changed."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, FloatType, IntegerType, LongType, NestedField, StringType
from tests.support.metastores import ManualClock
from tests.support.warehouse import append, create_table, delete_equal, delete_positions, rows_of, warehouse

from headrace.errors import UnsupportedOperation
from headrace.pipeline.tables.coverage import Range
from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.maintenance import file_groups
from headrace.pipeline.tables.port import TableChanged
from headrace.pipeline.tables.rewrites import Rewriting
from headrace.pipeline.tables.scanning import check_writable, live_files, plan_files

SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", DecimalType(4, 2)),
    NestedField(4, "ratio", FloatType()),
)
ARROW = pa.schema([("id", pa.int32()), ("name", pa.string()), ("price", pa.decimal128(4, 2)), ("ratio", pa.float32())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return warehouse(tmp_path)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    table = create_table(catalog, "t.orders", SCHEMA)
    for start in (0, 10):
        append(table, orders(start, start + 10))
    return table


def orders(start: int, end: int) -> pa.Table:
    rows = [{"id": n, "name": f"n{n}", "price": Decimal(n), "ratio": n / 2} for n in range(start, end)]
    return pa.Table.from_pylist(rows, schema=ARROW)


def compacted(table: Table) -> IcebergTable:
    """What a compaction does, without Spark. Gives the table back as it was read."""
    ours = IcebergTable(table, ManualClock(0))
    rewrite(ours)()
    return ours


def rewrite(ours: IcebergTable) -> Callable[[], None]:
    """Reads and writes now; what it gives back commits."""
    (group,) = file_groups(plan_files(ours.handle), size_target=2**30, is_closed=lambda _: True)
    rewriting = Rewriting(ours.handle)
    written = rewriting.written(list(rewriting.rewrite(group)))
    return lambda: ours.replace(written, removed=group, is_rewrite=True)


def by_id(table: Table) -> list[dict[str, Any]]:
    table.refresh()
    return sorted(rows_of(table), key=lambda row: int(row["id"] if "id" in row else row["number"]))


def test_renamed_dropped_and_promoted_columns_survive_compaction(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "title")
    with table.update_schema() as update:
        # A name that another column had: files by name would give that one's values.
        update.rename_column("id", "name")
    with table.update_schema() as update:
        update.update_column("name", LongType())
        update.rename_column("name", "number")
        update.update_column("price", DecimalType(12, 2))
        update.delete_column("ratio")
    before = by_id(table)
    assert [(row["number"], row["title"], row["price"]) for row in before] == [(n, f"n{n}", n) for n in range(20)]
    assert list(before[0]) == ["number", "title", "price"]
    compacted(table)
    assert by_id(table) == before
    assert len(live_files(table)) == 1


def test_a_column_dropped_and_added_again_under_its_name_stays_empty_for_older_rows(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("name")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    append(table, orders(20, 21))
    compacted(table)
    assert [row["name"] for row in by_id(table)] == [None] * 20 + ["n20"]


def test_rows_deleted_by_another_engine_stay_deleted(table: Table) -> None:
    first, second = live_files(table)
    delete_positions(table, first, [1, 3])
    delete_positions(table, second, [0])
    before = by_id(table)
    assert len(before) == 17
    compacted(table)
    assert by_id(table) == before
    assert not any(task.delete_files for task in plan_files(table))
    assert sum(data_file.record_count for data_file in live_files(table)) == 17, "their bytes are gone as well"


def test_rows_deleted_while_files_are_rewritten_stay_deleted(table: Table, catalog: Catalog) -> None:
    commit = rewrite(IcebergTable(table, ManualClock(0)))
    other = catalog.load_table("t.orders")
    delete_positions(other, live_files(other)[0], [5])
    left = by_id(other)
    # What the writer knew is an hour old; it learns of the other commit when its own is refused.
    with pytest.raises(TableChanged, match="rows of files to be replaced were deleted"):
        commit()
    assert by_id(table) == left
    assert len(left) == 19
    compacted(table)
    assert by_id(table) == left


def test_files_removed_while_they_are_rewritten_do_not_come_back(table: Table, catalog: Catalog) -> None:
    commit = rewrite(IcebergTable(table, ManualClock(0)))
    other = catalog.load_table("t.orders")
    other.delete("id < 10")
    with pytest.raises(TableChanged, match="files to be replaced are gone"):
        commit()
    assert [row["id"] for row in by_id(table)] == list(range(10, 20))


def test_what_is_rewritten_and_refused_leaves_no_files_behind(table: Table, catalog: Catalog, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*.parquet"))
    commit = rewrite(IcebergTable(table, ManualClock(0)))
    catalog.load_table("t.orders").delete("id < 10")
    with pytest.raises(TableChanged):
        commit()
    assert set(tmp_path.rglob("*.parquet")) == before


def test_rows_that_land_meanwhile_are_kept_beside_the_rewritten_ones(table: Table, catalog: Catalog) -> None:
    commit = rewrite(IcebergTable(table, ManualClock(0)))
    append(catalog.load_table("t.orders"), orders(20, 25))
    commit()
    assert [row["id"] for row in by_id(table)] == list(range(25))


def test_a_compaction_says_that_rows_are_the_same(table: Table) -> None:
    """Engines that read a table as a stream pass over `replace`, and stop at `overwrite`."""
    compacted(table)
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == "20"


def test_equality_deletes_are_refused_before_anything_is_read(table: Table) -> None:
    delete_equal(table, live_files(table)[0], 1, pa.table({"id": pa.array([3], pa.int32())}))
    with pytest.raises(UnsupportedOperation, match=r"t\.orders cannot be read: .*equality deletes.*rewrite_data_files"):
        plan_files(table)


def test_tables_of_a_version_that_cannot_be_written_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    table = create_table(catalog, "t.orders", SCHEMA)
    newer = table.metadata.model_copy(update={"format_version": 3})
    with pytest.raises(UnsupportedOperation, match="format version 3, which can be read and not written"):
        check_writable(Table(table.name(), newer, table.metadata_location, table.io, catalog))


def test_files_are_found_by_the_range_of_a_promoted_column(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("id", LongType())
    append(table, orders(20, 30))
    ours = IcebergTable(table, ManualClock(0))
    found = ours.files_with("id", [Range(12, 13), Range(25, 2**40)])
    assert sorted(task.file.record_count for task in found) == [10, 10]
    assert {task.file.file_path for task in found} == {data_file.file_path for data_file in live_files(table)} - {
        task.file.file_path for task in ours.files_with("id", [Range(0, 10)])
    }
    assert ours.files_with("id", []) == []


def test_files_of_an_older_partitioning_are_rewritten_to_the_newer(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = create_table(catalog, "t.parted", SCHEMA, spec=spec)
    for _ in range(2):
        append(table, orders(0, 3).set_column(1, "name", pa.array(["a"] * 3)))
    with table.update_spec() as update:
        update.remove_field("name")
    before = by_id(table)
    compacted(table)
    assert by_id(table) == before
    (data_file,) = live_files(table)
    assert data_file.spec_id == table.spec().spec_id
