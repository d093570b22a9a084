"""What a JSON payload says and its row cannot hold: fields the schema does not know, digits, a second document.

Spark's parser passes over all of it in silence. Everything here is an expression over the payload's text; nested fields and
digits are looked at through VARIANT, which keeps what the schema would drop.
"""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

_DIGITS_MAX = 38


def has_rest(text: Column) -> Column:
    """Whether anything but one JSON document is in the text. Parsers stop at the end of the first.

    Behind one document only `,` and `]` may follow in an array, only `,` and `}` in an object: a rest that is no error in
    either shows as a second element.
    """
    is_one = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    is_only = F.size(F.json_object_keys(F.concat(F.lit('{"":'), text, F.lit("}")))) == 1
    return ~F.coalesce(is_one & is_only, F.lit(False))


def unknown_field(text: Column, schema: StructType) -> Column:
    """The first field that the schema does not know or that is given twice; for one inside a column, the column."""
    keys = F.json_object_keys(text)
    names = F.array(*(F.lit(name) for name in schema.fieldNames()))
    strange = F.get(F.array_except(keys, names), F.lit(0))
    repeated = F.get(F.filter(keys, lambda key, place: F.array_position(keys, key) != place + 1), F.lit(0))
    nested = [
        F.when(_has_unknown(_member(_parsed(text), field.name), field.dataType), F.lit(field.name))
        for field in schema.fields
        if _holds(field.dataType, StructType)
    ]
    return F.coalesce(strange, repeated, *nested)


def rounded_column(text: Column, schema: StructType, payload: str) -> Column:
    """The first column with a number that has more digits than its DECIMAL."""
    rounded = [
        F.when(
            _is_rounded(_member(_parsed(text), field.name), F.col(f"{payload}.`{field.name}`"), field.dataType),
            F.lit(field.name),
        )
        for field in schema.fields
        if _holds(field.dataType, DecimalType)
    ]
    return F.coalesce(*rounded) if rounded else F.lit(None).cast("string")


def _parsed(text: Column) -> Column:
    return F.try_parse_json(text)


def _members(variant: Column) -> Column:
    return F.try_variant_get(variant, "$", "map<string,variant>")


def _member(variant: Column, name: str) -> Column:
    return F.try_element_at(_members(variant), F.lit(name))


def _elements(variant: Column) -> Column:
    return F.try_variant_get(variant, "$", "array<variant>")


def _holds(kind: DataType, wanted: type[DataType]) -> bool:
    """Whether the type is one of `wanted` or has one inside."""
    match kind:
        case _ if isinstance(kind, wanted):
            return True
        case StructType():
            return any(_holds(field.dataType, wanted) for field in kind.fields)
        case ArrayType():
            return _holds(kind.elementType, wanted)
        case MapType():
            return _holds(kind.valueType, wanted)
        case _:
            return False


def _has_unknown(variant: Column, kind: DataType) -> Column:
    found = F.lit(False)
    match kind:
        case StructType():
            names = F.array(*(F.lit(name) for name in kind.fieldNames())).cast("array<string>")
            found = F.size(F.array_except(F.map_keys(_members(variant)), names)) > 0
            inside = (
                _has_unknown(_member(variant, field.name), field.dataType)
                for field in kind.fields
                if _holds(field.dataType, StructType)
            )
            found = reduce(lambda one, other: one | other, inside, F.coalesce(found, F.lit(False)))
        case ArrayType():
            found = F.exists(_elements(variant), lambda element: _has_unknown(element, kind.elementType))
        case MapType():
            values = F.map_values(_members(variant))
            found = F.exists(values, lambda value: _has_unknown(value, kind.valueType))
    return F.coalesce(found, F.lit(False))


def _is_rounded(variant: Column, value: Column, kind: DataType) -> Column:
    found = F.lit(False)
    match kind:
        case DecimalType():
            exact = DecimalType(_DIGITS_MAX, _DIGITS_MAX - (kind.precision - kind.scale))
            found = F.try_variant_get(variant, "$", "string").try_cast(exact) != value
        case StructType():
            inside = (
                _is_rounded(_member(variant, field.name), value[field.name], field.dataType)
                for field in kind.fields
                if _holds(field.dataType, DecimalType)
            )
            found = reduce(lambda one, other: one | other, inside)
        case ArrayType():
            pairs = F.zip_with(
                _elements(variant), value, lambda element, kept: _is_rounded(element, kept, kind.elementType)
            )
            found = F.exists(pairs, lambda is_rounded: is_rounded)
        case MapType():
            pairs = F.map_zip_with(
                _members(variant), value, lambda _, element, kept: _is_rounded(element, kept, kind.valueType)
            )
            found = F.exists(F.map_values(pairs), lambda is_rounded: is_rounded)
    return F.coalesce(found, F.lit(False))
