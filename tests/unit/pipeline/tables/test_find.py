"""The rows of one record, found without Spark, and in the shape that the API gives on."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from headrace.admin.api.calls import RecordRows
from headrace.pipeline.tables.catalog import WarehouseSettings, open_catalog
from headrace.pipeline.tables.find import find

CONFIG = """
warehouse: {{path: {path}}}
pipelines:
  raw: {{kind: bronze, subscribe: orders, table: bronze.records}}
  orders: {{kind: silver, subscribe: orders, table: silver.orders, schema: "id BIGINT"}}
  minutes: {{kind: logjam_minute, subscribe: requests}}
"""
ORIGIN = [("_topic", pa.string()), ("_topic_partition", pa.int32()), ("_offset", pa.int64())]
PLACE = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yml"
    path.write_text(CONFIG.format(path=tmp_path / "warehouse"))
    catalog = open_catalog(WarehouseSettings(path=str(tmp_path / "warehouse")))
    for namespace in ("bronze", "silver", "logjam"):
        catalog.create_namespace(namespace)
    rows = [{"id": number, "_topic": "orders", "_topic_partition": 0, "_offset": number} for number in (1, 2, 2)]
    typed = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.int64()), *ORIGIN]))
    catalog.create_table("silver.orders", schema=typed.schema).append(typed)
    letter = {"topic": "orders", "partition": 0, "offset": 3, "value": b"\xff<b>", "reason": "not JSON"}
    dead = pa.Table.from_pylist(
        [{**letter, "failed_time": datetime(2026, 1, 31, tzinfo=UTC), "detail": None}],
        schema=pa.schema(
            [
                *PLACE,
                ("value", pa.binary()),
                ("reason", pa.string()),
                ("detail", pa.string()),
                ("failed_time", pa.timestamp("us", tz="UTC")),
            ]
        ),
    )
    catalog.create_table("silver.orders_dead_letters", schema=dead.schema).append(dead)
    catalog.create_table("logjam.minutes", schema=pa.schema([("page", pa.string())]))
    return path


def found_in(config: Path, offset: int, topic: str = "orders") -> dict[str, RecordRows]:
    found = msgspec.json.decode(msgspec.json.encode(find(config, topic, 0, offset)), type=list[RecordRows])
    return {each.table: each for each in found}


def test_rows_are_found_by_the_place_that_they_came_from(config: Path) -> None:
    found = found_in(config, 1)
    (row,) = found["silver.orders"].rows
    assert row.values == {"id": "1", "_topic": "orders", "_topic_partition": "0", "_offset": "1"}
    assert (found["silver.orders"].pipeline, found["silver.orders"].reason) == ("orders", None)
    # A table that was never made has no rows; one of sums cannot tell.
    assert found["bronze.records"].rows == []
    assert not found["logjam.minutes"].has_origins


def test_every_row_of_a_record_is_told(config: Path) -> None:
    assert len(found_in(config, 2)["silver.orders"].rows) == 2


def test_a_dead_letter_is_told_with_its_reason_and_bytes_as_text(config: Path) -> None:
    found = found_in(config, 3)
    assert found["silver.orders"].rows == []
    dead = found["silver.orders_dead_letters"]
    assert dead.reason == "not JSON"
    assert dead.rows[0].values["value"] == "ff 3c 62 3e"
    assert "detail" not in dead.rows[0].values


def test_a_record_of_another_topic_is_not_found(config: Path) -> None:
    assert not any(each.rows for each in found_in(config, 1, topic="others").values())
