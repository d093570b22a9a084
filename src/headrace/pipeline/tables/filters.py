"""Spark's filters as expressions that pyiceberg plans by. What has no sure counterpart is left out: Spark filters again."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from pyiceberg import types as iceberg
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
)
from pyiceberg.schema import Schema
from pyspark.sql import datasource as spark

_COMPARISONS: Final = {
    spark.EqualTo: EqualTo,
    spark.GreaterThan: GreaterThan,
    spark.GreaterThanOrEqual: GreaterThanOrEqual,
    spark.LessThan: LessThan,
    spark.LessThanOrEqual: LessThanOrEqual,
}
_VALUES: Final[dict[type[iceberg.IcebergType], type]] = {
    iceberg.BooleanType: bool,
    iceberg.IntegerType: int,
    iceberg.LongType: int,
    iceberg.StringType: str,
    iceberg.DateType: date,
    iceberg.DecimalType: Decimal,
    iceberg.TimestamptzType: datetime,
}
"""Types whose values both sides order alike, and how Python has them. Floating point is not among them, for NaN's sake."""


def expressions(filters: Iterable[spark.Filter], schema: Schema) -> Iterator[BooleanExpression]:
    """Those of the filters by which files can be left out."""
    for each in filters:
        # A nested field's path has several names, and statistics of lists and maps mean something else.
        if len(each.attribute) != 1 or each.attribute[0] not in schema.column_names:
            continue
        (name,) = each.attribute
        kind = schema.find_type(name)
        match each:
            case spark.IsNull():
                yield IsNull(name)
            case spark.IsNotNull():
                yield NotNull(name)
            case spark.In():
                values = [_literal(value, kind) for value in each.value]
                if values and None not in values:
                    yield In(name, values)
            case _ if type(each) in _COMPARISONS:
                value = _literal(each.value, kind)
                if value is not None:
                    yield _COMPARISONS[type(each)](name, value)


# A literal of a query: of any type.
def _literal(value: Any, kind: iceberg.IcebergType) -> Any | None:
    """The value as pyiceberg compares it with such a column; None where that is not sure."""
    wanted = _VALUES.get(type(kind))
    if wanted is None or type(value) is not wanted:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value
