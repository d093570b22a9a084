"""What the strict parser takes, and that it leaves everything it is not sure of."""

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipeline.decoder import ARROW_FIELDS
from headrace.pipeline.steps.strict import NESTING_MAX, VALUE_BYTES_MAX, StrictParser, is_strict
from headrace.pipeline.steps.typed import PayloadShape, Strictness

RECORD_SCHEMA = pa.schema(list(ARROW_FIELDS.items()))
COLUMNS: dict[str, DataType] = {
    "id": LongType(),
    "name": StringType(),
    "at": TimestampType(),
    "price": DoubleType(),
    "count": IntegerType(),
    "is_paid": BooleanType(),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
SHAPE = PayloadShape(schema=SCHEMA, event_time="at", required=frozenset({"id"}))
GOOD = '{"id": 1, "name": "a", "at": "2026-01-01T10:00:00Z", "price": 2.5, "count": 3, "is_paid": true}'


def records(values: list[bytes | None]) -> pa.RecordBatch:
    rows = [
        {"value": value, "topic": "orders", "partition": 3, "offset": offset, "timestamp": 1_000_000 + offset}
        for offset, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def split(*values: str | bytes | None, shape: PayloadShape = SHAPE) -> tuple[list[dict[str, object]], list[int]]:
    """Rows taken, and offsets of what was left."""
    batch = records([value.encode() if isinstance(value, str) else value for value in values])
    done = StrictParser(shape).split(batch)
    left = [offset for rest in done.rest for offset in rest.column("offset").to_pylist()]
    assert all(rest.schema == RECORD_SCHEMA for rest in done.rest)
    return [row for rows in done.accepted for row in rows.to_pylist()], sorted(left)


def test_a_plain_record_becomes_its_row() -> None:
    ((row,), left) = split(GOOD)
    assert not left
    assert {name: row[name] for name in ("id", "name", "price", "count", "is_paid")} == {
        "id": 1,
        "name": "a",
        "price": 2.5,
        "count": 3,
        "is_paid": True,
    }
    assert (row["_topic"], row["_topic_partition"], row["_offset"]) == ("orders", 3, 0)
    assert row["_event_time"] == row["at"]
    assert str(row["at"]) == "2026-01-01 10:00:00+00:00"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff{}",
        b'{"id": 1, "name": "\xff", "at": "2026-01-01T10:00:00Z"}',
        "not json",
        "[1]",
        f" {GOOD}",
        f"{GOOD} ",
        f"{GOOD}{GOOD}",
        GOOD.replace(", ", ",\n"),
        GOOD.replace('"id": 1', '"id": "1"'),
        GOOD.replace('"id": 1', '"id": 1.0'),
        GOOD.replace('"id": 1', '"id": 9223372036854775808'),
        GOOD.replace('"id": 1', '"id": null'),
        GOOD.replace('"id": 1, ', ""),
        GOOD.replace('"id": 1', '"id": 1, "id": 2'),
        GOOD.replace('"count": 3', '"count": 3000000000'),
        GOOD.replace('"name": "a"', '"name": 7'),
        GOOD.replace('"name": "a"', '"name": {"x": 1}'),
        GOOD.replace('"name": "a"', '"name": "\\ud800"'),
        GOOD.replace("2.5", "1e999"),
        GOOD.replace("2.5", "NaN"),
        GOOD.replace("2.5", '"2.5"'),
        GOOD.replace('"at": "2026-01-01T10:00:00Z"', '"at": null'),
        GOOD.replace("T10:00:00Z", "T10:00:00"),
        GOOD.replace("T10:00:00Z", " 10:00:00Z"),
        GOOD.replace("2026-01-01", "2026-02-30"),
        GOOD.replace("2026-01-01", "0001-01-01"),
        GOOD.replace("2026-01-01", "9999-12-31"),
        GOOD.replace("10:00:00Z", "10:00:00.1234567Z"),
        GOOD.replace('"at": "2026-01-01T10:00:00Z"', '"at": 1767261600'),
        GOOD.replace("}", ', "x": ' + "[" * NESTING_MAX + "]" * NESTING_MAX + "}"),
        GOOD.replace('"a"', f'"{"a" * VALUE_BYTES_MAX}"'),
        "{'id': 1}",
    ],
)
def test_what_it_is_not_sure_of_is_left_and_its_neighbours_are_taken(value: str | bytes | None) -> None:
    """A misfit that only parsing finds takes the few records around it along."""
    rows, left = split(*[GOOD] * 200, value, *[GOOD] * 200)
    assert 200 in left
    assert len(left) <= 64
    assert sorted([*left, *(row["_offset"] for row in rows)]) == list(range(401))  # type: ignore[type-var]


def test_columns_may_be_missing_or_unknown() -> None:
    lenient = msgspec.structs.replace(SHAPE, strictness=Strictness.LENIENT)
    value = '{"id": 5, "at": "2026-01-01T12:30:00.5+02:00", "extra": {"deep": [1, {"x": null}]}}'
    ((row,), left) = split(value, shape=lenient)
    assert not left
    assert (row["name"], row["price"], str(row["at"])) == (None, None, "2026-01-01 10:30:00.500000+00:00")


def test_without_an_event_time_the_records_own_stands_in() -> None:
    ((row,), _) = split(GOOD, shape=PayloadShape(schema=SCHEMA))
    assert row["_event_time"] == row["_timestamp"]


def test_an_object_that_spans_two_values_is_not_taken_for_two() -> None:
    for first, second in (('{"id": 1, "x": {}', '{"y": 1}}'), ('{"name": "}', '{", "id": 1}')):
        rows, left = split(first, second)
        assert (rows, left) == ([], [0, 1])


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.integers(-(2**63), 2**63 - 1)},
            optional={
                "name": st.none() | st.text(st.characters(codec="utf-8")),
                "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "count": st.none() | st.integers(-(2**31), 2**31 - 1),
                "is_paid": st.none() | st.booleans(),
            },
        ),
        max_size=80,
    )
)
def test_rows_are_what_json_says(documents: list[dict[str, object]]) -> None:
    rows, left = split(*map(json.dumps, documents), shape=PayloadShape(schema=SCHEMA))
    assert not left
    names = ("id", "name", "price", "count", "is_paid")
    assert [[row[name] for name in names] for row in rows] == [[doc.get(name) for name in names] for doc in documents]


@pytest.mark.parametrize(
    "shape",
    [
        PayloadShape(schema=None),
        PayloadShape(schema=SCHEMA, dropped_unless={"positive": "price > 0"}),
        PayloadShape(schema=SCHEMA, event_time="name"),
        PayloadShape(schema=StructType([StructField("tags", ArrayType(StringType()))])),
    ],
)
def test_shapes_that_need_spark_are_not_strict(shape: PayloadShape) -> None:
    assert not is_strict(shape)
    assert is_strict(SHAPE)


@pytest.mark.parametrize("strictness", list(Strictness))
def test_what_a_row_cannot_hold_goes_the_long_way_unless_nobody_wants_to_know(strictness: Strictness) -> None:
    shape = msgspec.structs.replace(SHAPE, strictness=strictness)
    more = GOOD.replace('"id": 1', '"id": 1, "unknown": {"a": 1}')
    taken, left = split(GOOD, more, GOOD + " " + GOOD, shape=shape)
    assert len(taken) + len(left) == 3
    assert 2 in left, "a second document"
    assert (1 in left) or strictness is Strictness.LENIENT
