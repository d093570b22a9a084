"""What stands in tables, read without Spark, and in the shape that the API gives on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.admin.api.calls import DeadLetterRow, SnapshotState, TableState
from headrace.errors import Invalid
from headrace.pipeline.tables.catalog import WarehouseSettings, open_catalog
from headrace.pipeline.tables.look import LETTERS_MAX, DeadLetter, Snapshot, TableLook, look

CONFIG = """
warehouse: {{path: {path}}}
pipelines:
  orders: {{kind: silver, subscribe: orders, table: silver.orders, schema: "id BIGINT"}}
"""
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yml"
    path.write_text(CONFIG.format(path=tmp_path / "warehouse"))
    return path


def letters(count: int) -> pa.Table:
    rows: list[dict[str, Any]] = [  # Any: a row
        {
            "topic": "orders",
            "partition": 0,
            "offset": number,
            "reason": "not JSON" if number % 3 else "does not fit",
            "column_name": None if number % 3 else "id",
            "detail": f"<b>{number}",
            "failed_time": NOON + timedelta(seconds=number),
        }
        for number in range(count)
    ]
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("reason", pa.string()),
            ("column_name", pa.string()),
            ("detail", pa.string()),
            ("failed_time", pa.timestamp("us", tz="UTC")),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def test_rows_commits_and_the_newest_dead_letters_are_told(config: Path, tmp_path: Path) -> None:
    catalog = open_catalog(WarehouseSettings(path=str(tmp_path / "warehouse")))
    catalog.create_namespace("silver")
    dead = catalog.create_table("silver.orders_dead_letters", schema=letters(0).schema)
    dead.append(letters(10))
    dead.append(letters(90))
    rows, found = look(config, "orders")
    assert (rows.table, rows.rows, rows.committed_ms, rows.is_dead_letters) == ("silver.orders", 0, None, False)
    assert (found.rows, found.files, found.is_counted) == (100, 2, True)
    assert [each.added_rows for each in found.snapshots] == [90, 10]
    assert found.committed_ms == found.snapshots[0].committed_ms
    assert found.reasons == {"not JSON": 66, "does not fit": 34}
    assert len(found.letters) == LETTERS_MAX
    newest = found.letters[0]
    assert (newest.offset, newest.reason, newest.column) == (89, "not JSON", None)
    assert newest.failed_ms == int((NOON + timedelta(seconds=89)).timestamp() * 1000)


def test_a_pipeline_that_there_is_not_is_said_to_be_missing(config: Path) -> None:
    with pytest.raises(Invalid, match="no pipeline nowhere"):
        look(config, "nowhere")


@pytest.mark.parametrize(
    ("ours", "theirs"), [(TableLook, TableState), (Snapshot, SnapshotState), (DeadLetter, DeadLetterRow)]
)
def test_the_api_gives_on_what_a_look_finds(ours: type[msgspec.Struct], theirs: type[msgspec.Struct]) -> None:
    assert set(ours.__struct_fields__) == set(theirs.__struct_fields__)
