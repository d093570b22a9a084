"""Nulls at every level stay null, and fields keep their values under another name, whether written or read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, ListType, MapType, NestedField, StringType, StructType
from tests.support.warehouse import append, create_table, rows_of, warehouse

from headrace.pipeline.tables.scanning import live_files


def optional_list(field_id: int, element: IcebergType) -> ListType:
    return ListType(field_id, element, element_required=False)


def optional_map(key_id: int, value_id: int, value: IcebergType) -> MapType:
    return MapType(key_id, StringType(), value_id, value, value_required=False)


POINT = StructType(NestedField(100, "x", IntegerType()), NestedField(101, "label", StringType()))
SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "points", optional_list(10, POINT)),
    NestedField(3, "by_name", optional_map(11, 12, POINT)),
    NestedField(
        4,
        "shape",
        StructType(
            NestedField(13, "points", optional_list(15, POINT)),
            NestedField(14, "by_name", optional_map(16, 17, POINT)),
        ),
    ),
    NestedField(5, "rings", optional_list(18, optional_list(19, POINT))),
    NestedField(6, "layers", optional_map(20, 21, optional_list(22, POINT))),
)
_POINT = pa.struct([("x", pa.int32()), ("label", pa.string())])
ARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("points", pa.list_(_POINT)),
        ("by_name", pa.map_(pa.string(), _POINT)),
        ("shape", pa.struct([("points", pa.list_(_POINT)), ("by_name", pa.map_(pa.string(), _POINT))])),
        ("rings", pa.list_(pa.list_(_POINT))),
        ("layers", pa.map_(pa.string(), pa.list_(_POINT))),
    ]
)

points = st.none() | st.fixed_dictionaries(
    {"x": st.none() | st.integers(-9, 9), "label": st.none() | st.text(max_size=2)}
)
lists = st.none() | st.lists(points, max_size=3)


def maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(st.tuples(st.text(max_size=2), values), max_size=3, unique_by=lambda entry: entry[0])


rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 99),
        "points": lists,
        "by_name": maps(points),
        "shape": st.none() | st.fixed_dictionaries({"points": lists, "by_name": maps(points)}),
        "rings": st.none() | st.lists(lists, max_size=2),
        "layers": maps(lists),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_rows=st.lists(rows, min_size=1, max_size=6), cut=st.integers(0, 5))
def test_what_is_written_is_what_every_reader_finds(tmp_path: Path, given_rows: list[Any], cut: int) -> None:
    catalog = warehouse(tmp_path)
    if catalog.table_exists("t.shapes"):
        catalog.drop_table("t.shapes")
    table = create_table(catalog, "t.shapes", SCHEMA)
    # A slice, as the rows of one partition value among others are.
    whole = pa.Table.from_pylist(given_rows, schema=ARROW)
    part = whole.slice(min(cut, whole.num_rows - 1))
    append(table, part)
    (data_file,) = live_files(table)
    found = pq.read_table(data_file.file_path.removeprefix("file://"))
    assert found.to_pylist() == part.to_pylist(), "pyarrow, which knows nothing of Iceberg"
    assert rows_of(table) == part.to_pylist()


def test_a_field_renamed_inside_lists_of_lists_keeps_its_values(tmp_path: Path) -> None:
    table = create_table(warehouse(tmp_path), "t.shapes", SCHEMA)
    point = {"x": 1, "label": "a"}
    row: dict[str, Any] = {
        "id": 1,
        "points": [point, None],
        "by_name": [("n", point)],
        "shape": {"points": None, "by_name": []},
        "rings": [[point], None],
        "layers": [("l", [point])],
    }
    append(table, pa.Table.from_pylist([row], schema=ARROW))
    with table.update_schema() as update:
        for parent in ("points.element", "by_name.value", "rings.element.element", "layers.value.element"):
            update.rename_column((*parent.split("."), "label"), "caption")
    renamed = {"x": 1, "caption": "a"}
    assert rows_of(table) == [
        {
            "id": 1,
            "points": [renamed, None],
            "by_name": [("n", renamed)],
            "shape": {"points": None, "by_name": []},
            "rings": [[renamed], None],
            "layers": [("l", [renamed])],
        }
    ]
