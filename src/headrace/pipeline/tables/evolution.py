"""How a table's columns follow those of a pipeline: columns are added and types widened, as Iceberg allows it without
rewriting files; nothing is narrowed, renamed or dropped."""

from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.table import Table as IcebergTableHandle
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructType,
)

from headrace.errors import Conflict
from headrace.pipeline.tables.port import ColumnMismatch, TableDefinition
from headrace.pipeline.tables.scanning import check_writable, spark_schema
from headrace.pipeline.tables.types import iceberg_schema


def fits(given: DataType, wanted: DataType) -> bool:
    """Whether values of `given` can be written as `wanted` without loss: the same, narrower, or with fields missing."""
    match given, wanted:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
        case StructType(), StructType():
            kinds = {field.name: field.dataType for field in wanted.fields}
            return all(field.name in kinds and fits(field.dataType, kinds[field.name]) for field in given.fields)
        case ArrayType(), ArrayType():
            return fits(given.elementType, wanted.elementType)
        case MapType(), MapType():
            return fits(given.keyType, wanted.keyType) and fits(given.valueType, wanted.valueType)
        case _:
            return bool(given.simpleString() == wanted.simpleString())


def widen(handle: IcebergTableHandle, definition: TableDefinition) -> None:
    """Add what the definition has and the table lacks. Raises `Conflict` for types that cannot become each other."""
    missing, misfits = _differences(definition.schema, spark_schema(handle))
    if not missing and not misfits:
        return
    check_writable(handle)
    try:
        with handle.update_schema() as update:
            update.union_by_name(iceberg_schema(definition.schema))
    except (ValueError, ValidationError, ResolveError) as error:
        raise Conflict(
            f"table {definition.name} has {'; '.join(misfits)}: this cannot be changed without rewriting it; "
            "give the pipeline a new table"
        ) from error
    handle.refresh()


def check_columns(name: str, given: StructType, table: StructType) -> None:
    """Raises `ColumnMismatch`: the writer would drop unknown columns silently, and take a wrong type for what it is not."""
    unknown, wrong = _differences(given, table)
    if unknown or wrong:
        raise ColumnMismatch(f"rows for {name}: unknown columns {unknown or 'none'}; wrong types {wrong or 'none'}")


def _differences(given: StructType, table: StructType) -> tuple[list[str], list[str]]:
    """Columns that the table lacks, and those whose values it cannot hold."""
    kinds = {field.name: field.dataType for field in table.fields}
    missing = [field.name for field in given.fields if field.name not in kinds]
    misfits = [
        f"{field.name} is {field.dataType.simpleString()}, not {kinds[field.name].simpleString()}"
        for field in given.fields
        if field.name in kinds and not fits(field.dataType, kinds[field.name])
    ]
    return missing, misfits
