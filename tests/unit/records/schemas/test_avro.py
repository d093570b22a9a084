"""Avro values: the specification's own bytes, bytes by another implementation (pyiceberg's encoder), and bytes that mean harm."""

import contextlib
import io
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.encoder import BinaryEncoder

from headrace.errors import Invalid
from headrace.records.schemas.avro import DEPTH_MAX, AvroSchema

MANY = 100_000


def decode(schema: object, data: bytes, values_max: int = MANY) -> Any:  # Any: JSON
    return AvroSchema(json.dumps(schema)).decode(data, values_max)


def record(name: str, /, **fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": of} for each, of in fields.items()]}


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        # Apache Avro 1.11, "Binary Encoding".
        ("long", "00", 0),
        ("long", "01", -1),
        ("long", "02", 1),
        ("long", "03", -2),
        ("int", "7f", -64),
        ("int", "8001", 64),
        ("string", "06666f6f", "foo"),
        (record("test", a="long", b="string"), "3606666f6f", {"a": 27, "b": "foo"}),
        ({"type": "enum", "name": "Foo", "symbols": ["A", "B", "C", "D"]}, "06", "D"),
        ({"type": "array", "items": "long"}, "04063600", [3, 27]),
        (["null", "string"], "00", None),
        (["null", "string"], "020261", "a"),
        # Made by hand from the same pages.
        ({"type": "array", "items": "long"}, "0304063600", [3, 27]),
        ({"type": "map", "values": "boolean"}, "020278010202790000", {"x": True, "y": False}),
        ({"type": "fixed", "name": "f", "size": 2}, "ff41", "\xffA"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "04cfc7", "-123.45"),
        ("long", "feffffffffffffffff01", 2**63 - 1),
        ("long", "ffffffffffffffffff01", -(2**63)),
        ("float", "0000c07f", "NaN"),
        ("double", "000000000000f0ff", "-Infinity"),
        ("double", "000000000000f03f", 1.0),
        ({"type": "long", "logicalType": "timestamp-millis"}, "02", 1),
        ({"type": {"type": "string"}}, "0261", "a"),
    ],
)
def test_bytes_of_the_specification(schema: object, data: str, expected: object) -> None:
    assert decode(schema, bytes.fromhex(data)) == expected


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
    schema = {**record("Shirt", a=inner, b="Colour", c="shop.Colour"), "namespace": "shop"}
    assert decode(schema, bytes.fromhex("020002")) == {"a": "blue", "b": "red", "c": "blue"}
    other = {**inner, "namespace": "elsewhere"}
    with pytest.raises(Invalid, match="no type 'Colour'"):
        decode({**record("Shirt", a=other, b="Colour"), "namespace": "shop"}, b"")


ORDER = record(
    "Order",
    id="long",
    name="string",
    paid="boolean",
    price={"type": "fixed", "name": "Price", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
    weight="double",
    small="float",
    blob="bytes",
    note=["null", "string"],
    tags={"type": "array", "items": "string"},
)


@given(
    number=st.integers(-(2**63), 2**63 - 1),
    name=st.text(st.characters(codec="utf-8")),
    paid=st.booleans(),
    price=st.integers(-(10**17), 10**17),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    small=st.floats(width=32, allow_nan=False, allow_infinity=False),
    blob=st.binary(max_size=40),
    note=st.none() | st.text(st.characters(codec="utf-8")),
    tags=st.lists(st.text(st.characters(codec="utf-8")), max_size=5),
    schema_id=st.none() | st.integers(0, 2**32 - 1),
)
def test_what_another_implementation_writes_is_read(
    number: int,
    name: str,
    paid: bool,
    price: int,
    weight: float,
    small: float,
    blob: bytes,
    note: str | None,
    tags: list[str],
    schema_id: int | None,
) -> None:
    stream = io.BytesIO()
    encoder = BinaryEncoder(stream)
    encoder.write_int(number)
    encoder.write_utf8(name)
    encoder.write_boolean(paid)
    encoder.write(price.to_bytes(8, signed=True))
    encoder.write_double(weight)
    encoder.write_float(small)
    encoder.write_bytes(blob)
    encoder.write_int(0 if note is None else 1)
    if note is not None:
        encoder.write_utf8(note)
    if tags:
        encoder.write_int(len(tags))
        for tag in tags:
            encoder.write_utf8(tag)
    encoder.write_int(0)
    framing = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4)
    found = decode(ORDER, framing + stream.getvalue())
    assert Decimal(found.pop("price")) == Decimal(price).scaleb(-4)
    assert found == {
        "id": number,
        "name": name,
        "paid": paid,
        "weight": weight,
        "small": small,
        "blob": blob.decode("latin-1"),
        "note": note,
        "tags": tags,
    }


def test_a_uuid_of_another_implementation_is_read_as_the_text_it_is() -> None:
    stream = io.BytesIO()
    BinaryEncoder(stream).write_utf8(str(UUID(int=7)))
    assert decode({"type": "string", "logicalType": "uuid"}, stream.getvalue()) == str(UUID(int=7))


LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ({"type": "array", "items": "null"}, "feffffffffffffffff0100", "more than 100000 values"),
        ({"type": "array", "items": record("Empty")}, "feffffffffffffffff0100", "more than 100000 values"),
        (LIST, "02" * 5000 + "00", f"nest more than {DEPTH_MAX} deep"),
        ("string", "feffffffffffffffff01", "are announced"),
        ("bytes", "01", "-1 bytes are announced"),
        ("string", "02ff", "not UTF-8"),
        ("long", "ff" * 11, "more than ten bytes"),
        ("long", "ffffffffffffffffff7f", "more than 64 bits"),
        ("int", "8080808010", "an int of"),
        ("long", "", "1 bytes are announced"),
        ("long", "0202", "left behind the value"),
        ("boolean", "02", "a boolean of 2"),
        (["null"], "02", "branch 1 of a union of 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "02", "no symbol 1"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "a01f" + "7f" * 2000, "a decimal of 2000 bytes"),
    ],
)
def test_bytes_that_mean_harm_are_refused_in_time(schema: object, data: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        decode(schema, bytes.fromhex(data))


def test_types_that_double_each_other_are_bounded() -> None:
    """Each level has two of the one below: a few hundred bytes of schema, no bytes of data, two to the sixtieth values."""
    schema: Any = record("R0")
    for level in range(1, 60):
        schema = record(f"R{level}", a=schema, b=f"R{level - 1}")
    with pytest.raises(Invalid, match="more than 1000 values"):
        decode(schema, b"", values_max=1000)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    everything = record("All", order=ORDER, list=LIST, map={"type": "map", "values": ["null", "L", "double"]})
    with contextlib.suppress(Invalid):
        decode(everything, data, values_max=1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "is no type"),
        ('"nothing"', "no type 'nothing'"),
        ('{"type": "array"}', "has no items"),
        ('{"type": "record", "name": "R"}', "has no fields"),
        ('{"type": "record", "fields": []}', "has no name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "R2"}]}', "no type 'R2'"),
        ('{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "a field without a name"),
        ('{"type": "fixed", "name": "F"}', "has no size"),
        ('[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]', "declared twice"),
        ('{"type": "enum", "name": "E", "symbols": [1]}', "no list of text"),
        ('{"type": "bytes", "logicalType": "decimal", "scale": -1}', "whose scale is -1"),
        ('{"type": "array", "items": ' * 80 + '"int"' + "}" * 80, "nest more than"),
    ],
)
def test_a_broken_schema_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        AvroSchema(text)
