"""The shape of a payload from settings: DDL, or a JSON Schema file, or promoted columns."""

from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import ParseException
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import Invalid
from headrace.pipeline.explain import brief
from headrace.pipeline.schemas import parse_ddl
from headrace.pipeline.settings import SilverSettings
from headrace.pipeline.steps.typed import RESCUED, PayloadShape, Strictness

_PRIMITIVES: Final = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}
_OF_EVERY_ROW: Final = frozenset({"_topic", "_topic_partition", "_offset", "_timestamp", "_event_time", RESCUED})
_FORMATS: Final = {"date-time": TimestampType(), "date": DateType()}


def payload_shape(settings: SilverSettings) -> PayloadShape:
    if settings.schema and settings.schema_file:
        raise Invalid("give schema or schema_file, not both")
    schema: StructType | None = None
    if settings.schema:
        schema = _from_ddl(settings.schema)
    elif settings.schema_file:
        schema = _from_file(Path(settings.schema_file))
    names = schema.fieldNames() if schema is not None else list(settings.promote)
    if settings.event_time is not None and settings.event_time not in names:
        raise Invalid(f"event_time {settings.event_time} is not one of the columns {', '.join(names)}")
    taken = sorted(_OF_EVERY_ROW.intersection(names))
    if taken:
        raise Invalid(
            f"columns cannot be called {', '.join(taken)}: every row has these to say which record it came of"
        )
    required = (
        frozenset(field.name for field in schema.fields if not field.nullable) if schema is not None else frozenset()
    )
    return PayloadShape(
        schema=schema,
        promoted=settings.promote,
        required=required,
        event_time=settings.event_time,
        dropped_unless={name: e.that for name, e in settings.expectations.items() if e.otherwise == "drop"},
        strictness=Strictness(settings.strictness),
    )


def _from_ddl(ddl: str) -> StructType:
    try:
        return parse_ddl(ddl)
    except ParseException as error:
        raise Invalid(
            f"schema {ddl!r} is no list of columns as `id BIGINT NOT NULL, name STRING`: {brief(error)}"
        ) from error


def _from_file(path: Path) -> StructType:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise Invalid(f"schema_file {path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Invalid(f"schema_file {path} is no JSON Schema: {error}") from error
    try:
        return from_json_schema(document)
    except Invalid as error:
        raise Invalid(f"schema_file {path}: {error}") from error


# A JSON Schema is a nested document of anything.
def from_json_schema(document: dict[str, Any]) -> StructType:
    """The properties of an object schema as columns. What has no counterpart is kept as JSON text."""
    if document.get("type") != "object" or "properties" not in document:
        raise Invalid("a JSON Schema for a table must be an object with properties")
    required = set(document.get("required", ()))
    return StructType(
        [StructField(name, _type_of(kind), name not in required) for name, kind in document["properties"].items()]
    )


def _type_of(kind: dict[str, Any]) -> DataType:
    names = kind.get("type")
    name = next((n for n in names if n != "null"), None) if isinstance(names, list) else names
    match name:
        case "string":
            return _FORMATS.get(kind.get("format", ""), StringType())
        case "object" if "properties" in kind:
            return StructType([StructField(key, _type_of(value)) for key, value in kind["properties"].items()])
        case "object" if isinstance(kind.get("additionalProperties"), dict):
            return MapType(StringType(), _type_of(kind["additionalProperties"]))
        case "array" if isinstance(kind.get("items"), dict):
            return ArrayType(_type_of(kind["items"]))
        case _:
            return _PRIMITIVES.get(str(name), StringType())
