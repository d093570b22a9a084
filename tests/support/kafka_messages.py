"""Values of every Kafka message, made from the schema tables, and a slow second encoder to hold the fast one against.

`sample` gives one fixed value per kind, for oracles that refuse odd values; `values` is a hypothesis strategy over
all of them; `project` cuts a value down to what one version can say.
"""

import importlib
import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import strategies as st

from headrace.wire.kafka.message import Message
from headrace.wire.kafka.schema import all_messages
from headrace.wire.kafka.schema.parse import Field, MessageSchema, StructSchema

# Values here are of whatever type a schema says; a static type would have to be every type.
Value = Any

SCHEMAS: dict[str, MessageSchema] = {schema.name: schema for schema in all_messages()}
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


def versions_of(schema: MessageSchema) -> range:
    return range(schema.versions.first, schema.versions.last + 1)


def every_version() -> list[tuple[str, int]]:
    return [(name, version) for name, schema in SCHEMAS.items() for version in versions_of(schema)]


def module_of(name: str) -> Any:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    package = "coordination" if SCHEMAS[name].api_key is None else "kafka"
    return importlib.import_module(f"headrace.wire.{package}.messages.{snake}")


def class_of(name: str) -> type[Message]:
    found: type[Message] = getattr(module_of(name), name)
    return found


def struct_named(schema: MessageSchema, name: str) -> StructSchema:
    return next(known for known in schema.structs if known.name == name)


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    message.encode(out, version)
    return bytes(out)


def fields_of(struct_schema: StructSchema, version: int) -> list[Field]:
    return [field for field in struct_schema.fields if field.versions.first <= version <= field.versions.last]


# Fixed samples


def sample(name: str, version: int, kind: str) -> Message:
    """A value with every field of `version` set ("full"), or with nulls and empty arrays ("bare")."""
    schema = SCHEMAS[name]
    made: Message = _sample_struct(schema, schema.root, version, kind, count(1))
    return made


def _sample_struct(
    schema: MessageSchema, shape: StructSchema, version: int, kind: str, numbers: Iterator[int]
) -> Value:
    values = {field.name: _sample_field(schema, field, version, kind, numbers) for field in fields_of(shape, version)}
    return getattr(module_of(schema.name), shape.name)(**values)


def _sample_field(schema: MessageSchema, field: Field, version: int, kind: str, numbers: Iterator[int]) -> Value:
    if kind == "bare":
        if field.nullable_from is not None and version >= field.nullable_from:
            return None
        if field.is_array:
            return []
        if field.is_struct and field.tag is not None:
            return None
    if field.is_array:
        return [_sample_item(schema, field, version, kind, numbers) for _ in range(2)]
    return _sample_item(schema, field, version, kind, numbers)


def _sample_item(schema: MessageSchema, field: Field, version: int, kind: str, numbers: Iterator[int]) -> Value:
    number = next(numbers)
    match field.type:
        case "bool":
            return field.default != "true"
        case "int8":
            return number % 100
        case "int16":
            # Oracles map error codes to enums, so every int16 is a code that exists.
            return number % 100 + 1
        case "int32":
            return 1000 + number
        case "int64":
            return 1_700_000_000_000 + number
        case "float64":
            return number + 0.5
        case "string":
            return f"{field.name}-{number}-é"
        case "uuid":
            return struct.pack(">qq", number, number)
        case "bytes" | "records":
            return bytes([number % 256]) * (number % 7 + 1)
        case _:
            return _sample_struct(schema, struct_named(schema, field.type), version, kind, numbers)


# Strategies


PRIMITIVE_VALUES: dict[str, st.SearchStrategy[Value]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8) | st.just("long" * 50),
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=8) | st.just(b"long" * 50),
    "records": st.binary(max_size=8) | st.just(b"long" * 5000),
}


def values(name: str) -> st.SearchStrategy[Message]:
    """Any value of a message, fields of all versions set; `project` it before encoding."""
    schema = SCHEMAS[name]
    return _struct_values(schema, schema.root)


def _struct_values(schema: MessageSchema, shape: StructSchema) -> st.SearchStrategy[Value]:
    made = getattr(module_of(schema.name), shape.name)
    return st.builds(made, **{field.name: _field_values(schema, field) for field in shape.fields})


def _field_values(schema: MessageSchema, field: Field) -> st.SearchStrategy[Value]:
    if field.is_struct:
        one = _struct_values(schema, struct_named(schema, field.type))
    else:
        one = PRIMITIVE_VALUES[field.type]
    if field.is_array:
        one = st.lists(one, max_size=2)
    is_optional = field.nullable_from is not None or (field.is_struct and field.tag is not None and not field.is_array)
    return st.none() | one if is_optional else one


def project(schema: MessageSchema, value: Value, version: int) -> Value:
    """`value` with every field that `version` cannot say at its default, all the way down."""
    return _project_struct(schema, schema.root, value, version)


def _project_struct(schema: MessageSchema, shape: StructSchema, value: Value, version: int) -> Value:
    kept: dict[str, Value] = {}
    for field in fields_of(shape, version):
        item = getattr(value, field.name)
        if item is None and field.nullable_from is not None and version < field.nullable_from:
            continue
        if item is not None and field.is_struct:
            child = struct_named(schema, field.type)
            if field.is_array:
                item = [_project_struct(schema, child, one, version) for one in item]
            else:
                item = _project_struct(schema, child, item, version)
        kept[field.name] = item
    return type(value)(**kept)


# The slow encoder


class SlowEncoder:
    """Follows the tables field by field. Can add tagged fields nobody knows, and remembers where counts lie."""

    def __init__(self, name: str, version: int, *, unknown_tags: bool = False) -> None:
        self.schema = SCHEMAS[name]
        self.version = version
        self.is_flexible = self.schema.flexible_from is not None and version >= self.schema.flexible_from
        self.unknown_tags = unknown_tags
        self.count_places: list[tuple[int, int]] = []
        """Where each array's count starts and ends, tagged fields aside."""

    def encode(self, value: Message) -> bytes:
        return self._struct(self.schema.root, value, 0)

    def _struct(self, shape: StructSchema, value: Value, at: int | None) -> bytes:
        out = b""
        tags: list[tuple[int, bytes]] = []
        for field in fields_of(shape, self.version):
            item = getattr(value, field.name)
            if field.tag is None:
                out += self._field(field, item, None if at is None else at + len(out))
            elif not self._is_default(field, item):
                tags.append((field.tag, self._field(field, item, None)))
        if self.is_flexible:
            if self.unknown_tags:
                tags += [(77, b"\xff" * 3), (1_000_000, b"")]
            out += uvarint(len(tags))
            for tag, body in sorted(tags):
                out += uvarint(tag) + uvarint(len(body)) + body
        return out

    def _is_default(self, field: Field, item: Value) -> bool:
        made = getattr(class_of(self.schema.name)(), field.name, ...)
        if made is ...:
            owner = next(shape for shape in self.schema.structs if field in shape.fields)
            made = getattr(getattr(module_of(self.schema.name), owner.name)(), field.name)
        return bool(item == made)

    def _field(self, field: Field, item: Value, at: int | None) -> bytes:
        if field.is_array:
            if item is None:
                return self._length(-1, 4)
            out = self._length(len(item), 4)
            if at is not None:
                self.count_places.append((at, at + len(out)))
            for one in item:
                out += self._one(field, one, None if at is None else at + len(out))
            return out
        if field.is_struct and field.nullable_from is not None:
            return b"\xff" if item is None else b"\x01" + self._one(field, item, None if at is None else at + 1)
        return self._one(field, item, at)

    def _one(self, field: Field, item: Value, at: int | None) -> bytes:
        if field.type in FORMATS:
            return struct.pack(">" + FORMATS[field.type], item)
        if field.is_struct:
            return self._struct(struct_named(self.schema, field.type), item, at)
        width = 2 if field.type == "string" else 4
        if item is None:
            return self._length(-1, width)
        raw = item.encode() if field.type == "string" else bytes(item)
        return self._length(len(raw), width) + raw

    def _length(self, length: int, width: int) -> bytes:
        if self.is_flexible:
            return uvarint(length + 1)
        return struct.pack(">h" if width == 2 else ">i", length)


def uvarint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
