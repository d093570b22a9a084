"""What is kept of a table's past, and which files are nobody's."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import IntegerType, NestedField
from tests.support.metastores import ManualClock
from tests.support.warehouse import append, create_table, rows_of, warehouse

from headrace.pipeline.tables.iceberg import IcebergTable
from headrace.pipeline.tables.maintenance import delete_orphans, expire_snapshots, expired_snapshots
from headrace.pipeline.tables.retention import AGE_PROPERTY, COUNT_PROPERTY, Retention

FAR = 2**50
"""A time at which everything is old."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = create_table(warehouse(tmp_path), "t.numbers", Schema(NestedField(1, "n", IntegerType())))
    for number in range(6):
        append(table, pa.table({"n": pa.array([number], pa.int32())}))
    return table


def ids(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)]


def test_a_tag_keeps_its_snapshot_and_does_not_stop_the_others_from_going(table: Table) -> None:
    all_ids = ids(table)
    table.manage_snapshots().create_tag(all_ids[1], "audit").commit()
    assert expire_snapshots(table, now_ms=FAR, retention=Retention(count=2), is_due=True) == 3
    assert ids(table) == [all_ids[1], *all_ids[4:]]
    delete_orphans(table, now_ms=FAR, age_ms=0)
    audit = table.scan(snapshot_id=all_ids[1]).to_arrow().column("n").to_pylist()
    assert sorted(audit) == [0, 1], "its files are still there"


def test_a_branch_keeps_its_own_line(table: Table) -> None:
    all_ids = ids(table)
    table.manage_snapshots().create_branch(all_ids[3], "trial", min_snapshots_to_keep=2).commit()
    assert expired_snapshots(table.metadata, now_ms=FAR, retention=Retention(count=1)) == [*all_ids[:2], all_ids[4]]


def test_snapshots_are_kept_by_age_as_well_as_by_count(table: Table) -> None:
    newest_ms = max(snapshot.timestamp_ms for snapshot in table.metadata.snapshots)
    young, old = newest_ms + 1_000, newest_ms + 3_600_001
    by_age = Retention(count=1, age_ms=3_600_000)
    assert expired_snapshots(table.metadata, now_ms=young, retention=by_age) == []
    assert expired_snapshots(table.metadata, now_ms=old, retention=by_age) == ids(table)[:-1]
    assert expired_snapshots(table.metadata, now_ms=old, retention=Retention(count=4)) == ids(table)[:2]


def test_the_tables_own_properties_come_first_and_nonsense_in_them_is_passed_over(table: Table) -> None:
    ours = Retention(count=50, age_ms=0)
    assert ours.of_table({COUNT_PROPERTY: "3", AGE_PROPERTY: "60000"}) == Retention(count=3, age_ms=60_000)
    assert ours.of_table({COUNT_PROPERTY: "many", AGE_PROPERTY: "-1"}) == ours
    with table.transaction() as transaction:
        transaction.set_properties({COUNT_PROPERTY: "3"})
    assert IcebergTable(table, ManualClock(FAR)).expire_snapshots(is_due=True) == 3


def test_expiry_waits_until_it_is_worth_a_commit(table: Table) -> None:
    assert expire_snapshots(table, now_ms=FAR, retention=Retention(count=1)) == 0
    assert len(ids(table)) == 6


def test_statistics_that_the_metadata_names_are_no_orphans(table: Table) -> None:
    location = Path(table.location().removeprefix("file://"))
    named, nobodys, hint = (
        location / "metadata" / name for name in ("named.stats", "nobodys.stats", "version-hint.text")
    )
    for path in (named, nobodys, hint):
        path.write_bytes(b"statistics")
    newest = ids(table)[-1]
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=newest,
                statistics_path=f"file://{named}",
                file_size_in_bytes=10,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )
    assert delete_orphans(table, now_ms=FAR, age_ms=0) == 1
    assert (named.exists(), nobodys.exists(), hint.exists()) == (True, False, True)
    assert sorted(row["n"] for row in rows_of(table)) == list(range(6))
