"""A table follows its pipeline where Iceberg allows it, and takes rows of a pipeline that has stayed behind."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from tests.support.warehouse import append, rows_of, warehouse

from headrace.errors import Conflict
from headrace.pipeline.tables.evolution import check_columns, fits
from headrace.pipeline.tables.iceberg import IcebergTables
from headrace.pipeline.tables.port import ColumnMismatch, TableDefinition
from headrace.pipeline.tables.scanning import spark_schema

INT, LONG, FLOAT, DOUBLE, TEXT = (
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.StringType(),
)


def struct(**fields: spark.DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def define(schema: StructType) -> TableDefinition:
    return TableDefinition(name="t.rows", schema=schema)


NARROW = struct(
    id=INT,
    ratio=FLOAT,
    price=spark.DecimalType(4, 2),
    place=struct(zip=INT),
    counts=spark.ArrayType(INT),
    by_name=spark.MapType(TEXT, struct(n=INT)),
)
WIDE = struct(
    id=LONG,
    ratio=DOUBLE,
    price=spark.DecimalType(12, 2),
    place=struct(zip=LONG, city=TEXT),
    counts=spark.ArrayType(LONG),
    by_name=spark.MapType(TEXT, struct(n=LONG, m=INT)),
    added=TEXT,
)
NARROW_ROW: dict[str, Any] = {
    "id": 1,
    "ratio": 0.5,
    "price": Decimal("1.25"),
    "place": {"zip": 7},
    "counts": [1, None],
    "by_name": [("a", {"n": 1})],
}
AS_WIDE: dict[str, Any] = {
    **NARROW_ROW,
    "place": {"zip": 7, "city": None},
    "by_name": [("a", {"n": 1, "m": None})],
    "added": None,
}


def arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema)


def test_every_promotion_that_iceberg_allows_is_made_and_rows_from_before_keep_their_values(tmp_path: Path) -> None:
    tables = IcebergTables(warehouse(tmp_path))
    table = tables.ensure(define(NARROW)).handle
    append(table, pa.Table.from_pylist([NARROW_ROW], schema=arrow(NARROW)))
    widened = tables.ensure(define(WIDE)).handle
    assert spark_schema(widened).simpleString() == WIDE.simpleString()
    wide_row = {**AS_WIDE, "id": 2**40, "added": "x", "place": {"zip": 2**40, "city": "Rome"}}
    append(widened, pa.Table.from_pylist([wide_row], schema=arrow(WIDE)))
    assert sorted(rows_of(widened), key=lambda row: int(row["id"])) == [AS_WIDE, wide_row]


def test_a_pipeline_that_stayed_behind_writes_to_a_table_that_was_widened(tmp_path: Path) -> None:
    tables = IcebergTables(warehouse(tmp_path))
    table = tables.ensure(define(WIDE))
    schema_id = table.handle.metadata.current_schema_id
    again = tables.ensure(define(NARROW))
    assert again.handle.metadata.current_schema_id == schema_id, "nothing is narrowed"
    again.target(NARROW)
    append(again.handle, pa.Table.from_pylist([NARROW_ROW], schema=arrow(NARROW)))
    assert rows_of(again.handle) == [AS_WIDE]


def test_what_iceberg_does_not_allow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    tables = IcebergTables(warehouse(tmp_path))
    table = tables.ensure(define(struct(id=LONG, name=TEXT, place=struct(zip=INT)))).handle
    for other in (struct(id=TEXT), struct(name=INT), struct(place=TEXT), struct(id=spark.DecimalType(20, 0))):
        with pytest.raises(Conflict, match="give the pipeline a new table"):
            tables.ensure(define(other))
    table.refresh()
    assert spark_schema(table).simpleString() == "struct<id:bigint,name:string,place:struct<zip:int>>"


def test_rows_that_a_table_cannot_hold_are_named() -> None:
    with pytest.raises(ColumnMismatch, match=r"unknown columns \['b'\]; wrong types \['a is bigint, not int'\]"):
        check_columns("t.rows", struct(a=LONG, b=INT), struct(a=INT))
    assert not fits(struct(x=INT, y=INT), struct(x=INT)), "a field that the table lacks would be dropped"
    assert not fits(spark.DecimalType(9, 3), spark.DecimalType(12, 2)), "it would be rounded"
