"""Spark's types as Iceberg's, one to one; what has no exact counterpart is refused rather than bent."""

from collections.abc import Iterator

from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform
from pyspark.sql import types as spark

from headrace.errors import Invalid
from headrace.pipeline.tables.port import PartitionField

_PRIMITIVES = {
    spark.BooleanType: iceberg.BooleanType,
    spark.IntegerType: iceberg.IntegerType,
    spark.LongType: iceberg.LongType,
    spark.FloatType: iceberg.FloatType,
    spark.DoubleType: iceberg.DoubleType,
    spark.DateType: iceberg.DateType,
    spark.TimestampType: iceberg.TimestamptzType,
    spark.TimestampNTZType: iceberg.TimestampType,
    spark.StringType: iceberg.StringType,
    spark.BinaryType: iceberg.BinaryType,
}
_TRANSFORMS = {
    "hour": HourTransform(),
    "day": DayTransform(),
    "month": MonthTransform(),
    "identity": IdentityTransform(),
}
_FIRST_PARTITION_FIELD_ID = 1000
_RESERVED = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Metadata columns of Iceberg: its own Spark runtime refuses to read a table that has one of these as a column."""


def iceberg_schema(schema: spark.StructType) -> Schema:
    """Field ids are provisional: the catalog assigns its own, in this order, when it creates the table."""
    taken = sorted(_RESERVED.intersection(schema.fieldNames()))
    if taken:
        raise Invalid(f"columns cannot be called {', '.join(taken)}: Iceberg keeps these names for itself")
    counter = iter(range(1, 100_000))
    return Schema(*(_field(field, counter) for field in schema.fields))


def partition_spec(partitioning: tuple[PartitionField, ...], schema: Schema) -> PartitionSpec:
    fields = []
    for index, part in enumerate(partitioning):
        if part.transform not in _TRANSFORMS:
            raise Invalid(f"partitioning by {part.transform}: there are {', '.join(_TRANSFORMS)}")
        fields.append(
            IcebergPartitionField(
                source_id=schema.find_field(part.column).field_id,
                field_id=_FIRST_PARTITION_FIELD_ID + index,
                transform=_TRANSFORMS[part.transform],
                name=part.column if part.transform == "identity" else f"{part.column}_{part.transform}",
            )
        )
    return PartitionSpec(*fields)


def _field(field: spark.StructField, counter: Iterator[int]) -> iceberg.NestedField:
    field_id = next(counter)
    return iceberg.NestedField(field_id, field.name, _type(field.dataType, counter), required=False)


def _type(kind: spark.DataType, counter: Iterator[int]) -> iceberg.IcebergType:
    primitive = _PRIMITIVES.get(type(kind))
    if primitive is not None:
        return primitive()
    match kind:
        case spark.DecimalType():
            return iceberg.DecimalType(kind.precision, kind.scale)
        case spark.StructType():
            return iceberg.StructType(*(_field(field, counter) for field in kind.fields))
        case spark.ArrayType():
            return iceberg.ListType(next(counter), _type(kind.elementType, counter), element_required=False)
        case spark.MapType():
            return iceberg.MapType(
                next(counter),
                _type(kind.keyType, counter),
                next(counter),
                _type(kind.valueType, counter),
                value_required=False,
            )
        case _:
            raise Invalid(f"a table cannot hold {kind.simpleString()}; cast it to a type that Iceberg has")
