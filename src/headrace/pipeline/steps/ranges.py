"""What a table cannot hold, recognised before it reaches a writer: a producer may send anything, and no query may stop at it.

Tables hold times of the years 1 to 9999; pyiceberg's writer fails on others. Two kinds of JSON number must not even reach
Spark's parser: it multiplies a number in a TIMESTAMP column by a million without looking whether that fits 64 bits, so that
epoch milliseconds become a wrong time of any year, and it writes the zeros of a DECIMAL out, so that `1e999999999`, eleven
bytes, keeps a core busy for hours.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 to 9999 in milliseconds since 1970, the end exclusive."""
LITERALS: Final[dict[type[DataType], tuple[str, str]]] = {
    TimestampType: ("TIMESTAMP '0001-01-01 00:00:00Z'", "TIMESTAMP '+10000-01-01 00:00:00Z'"),
    TimestampNTZType: ("TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '+10000-01-01 00:00:00'"),
    DateType: ("DATE '0001-01-01'", "DATE '+10000-01-01'"),
}

_LONG: Final = "[0-9]{13,}"
"""Seconds with as many digits are beyond the year 33,000."""
_EXPONENT: Final = r"[0-9.][eE][+-]?0*[1-9][0-9]{3,}"
"""An exponent of a thousand or more, which no column of any type can hold."""
_RAW: Final[dict[type[DataType], str]] = {TimestampType: f"^-?{_LONG}$", DecimalType: _EXPONENT}
_STRING_OR_EXPONENT: Final = r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|' + _EXPONENT

LeafTest = Callable[[Column, DataType], Column | None]
"""Whether a value of that type is meant; None for types that never are."""


def is_absurd(time: Column) -> Column:
    """Whether a TIMESTAMP is outside the years that tables hold."""
    return _is_outside(time, *LITERALS[TimestampType])


def is_absurd_leaf(value: Column, kind: DataType) -> Column | None:
    """As `is_absurd`, for every type that has a calendar in it."""
    bounds = LITERALS.get(type(kind))
    return None if bounds is None else _is_outside(value, *bounds)


def timestamp_columns() -> list[Column]:
    """A record's own `timestamp` as tables have it, and in `timestamp_absurd_ms` what that cannot hold."""
    time = F.col("timestamp")
    return [
        F.when(~is_absurd(time), time).alias("timestamp"),
        F.when(is_absurd(time), F.unix_millis(time)).alias("timestamp_absurd_ms"),
    ]


def first_column(payload: Column, schema: StructType, test: LeafTest) -> Column:
    """The name of the first column in which `test` finds something at any depth; null when there is none."""
    found = [
        F.when(condition, F.lit(field.name))
        for field in schema.fields
        if (condition := _anywhere(payload[field.name], field.dataType, test)) is not None
    ]
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def unparsable_column(text: Column, schema: StructType) -> Column:
    """The column with a number that Spark's parser must not see, `""` when only the text shows it, null without any."""
    kinds = _kinds(schema)
    patterns = [pattern for kind, pattern in ((TimestampType, _LONG), (DecimalType, _EXPONENT)) if kind in kinds]
    if not patterns:
        return F.lit(None).cast("string")
    raw = F.from_json(text, _as_text(schema))
    found = first_column(raw, schema, lambda value, kind: _matches(value, _RAW.get(type(kind))))
    if DecimalType in kinds:
        # Spark rounds a number to a double where a column is text, so numbers outside of strings are looked for as text.
        is_bare = F.regexp_replace(text, _STRING_OR_EXPONENT, "$1") != text
        found = F.coalesce(found, F.when(is_bare, F.lit("")))
    return F.when(text.rlike("|".join(patterns)), found)


def _is_outside(value: Column, first: str, end: str) -> Column:
    return F.coalesce((value < F.expr(first)) | (value >= F.expr(end)), F.lit(False))


def _matches(value: Column, pattern: str | None) -> Column | None:
    return None if pattern is None else F.coalesce(value.rlike(pattern), F.lit(False))


def _anywhere(value: Column, kind: DataType, test: LeafTest) -> Column | None:
    """Whether `test` finds something in a value or, for nested types, in any part of it."""
    match kind:
        case StructType():
            parts = [_anywhere(value[field.name], field.dataType, test) for field in kind.fields]
        case ArrayType():
            parts = [_in_elements(value, kind.elementType, test)]
        case MapType():
            parts = [
                _in_elements(F.map_keys(value), kind.keyType, test),
                _in_elements(F.map_values(value), kind.valueType, test),
            ]
        case _:
            return test(value, kind)
    conditions = [part for part in parts if part is not None]
    if not conditions:
        return None
    either = conditions[0]
    for condition in conditions[1:]:
        either = either | condition
    return either


def _in_elements(values: Column, kind: DataType, test: LeafTest) -> Column | None:
    if _anywhere(F.lit(None), kind, test) is None:
        return None

    def is_found(element: Column) -> Column:
        condition = _anywhere(element, kind, test)
        assert condition is not None, "asked above"
        return condition

    return F.coalesce(F.exists(values, is_found), F.lit(False))


def _kinds(kind: DataType) -> set[type[DataType]]:
    match kind:
        case StructType():
            return {found for field in kind.fields for found in _kinds(field.dataType)}
        case ArrayType():
            return _kinds(kind.elementType)
        case MapType():
            return _kinds(kind.keyType) | _kinds(kind.valueType)
        case _:
            return {type(kind)}


def _as_text(kind: DataType) -> DataType:
    """The same shape with the types whose text matters as text."""
    match kind:
        case StructType():
            return StructType([StructField(field.name, _as_text(field.dataType)) for field in kind.fields])
        case ArrayType():
            return ArrayType(_as_text(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _as_text(kind.valueType))
        case _:
            return StringType() if type(kind) in _RAW else kind
