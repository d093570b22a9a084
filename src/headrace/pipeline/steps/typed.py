"""JSON payloads to typed rows, or to a reason why not.

`judge` gives every record a verdict in one pass; `accepted` and `dead_letters` pick the two halves. A record is dead when
it has no value, is no JSON object, does not fit the schema, has a value that no table can hold, lacks a required column,
or has no usable event time. What the row of a good record cannot hold is kept beside it, refused or left out, by
`Strictness`. No record makes `judge` fail.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from headrace.pipeline.decoder import UNREADABLE_HEADER
from headrace.pipeline.schemas import SILVER_ORIGIN_DDL, parse_ddl
from headrace.pipeline.steps.leftover import has_rest, rounded_column, unknown_field
from headrace.pipeline.steps.ranges import first_column, is_absurd, is_absurd_leaf, timestamp_columns, unparsable_column

CORRUPT: Final = "_corrupt"
RESCUED: Final = "_rescued"
DETAIL_LENGTH: Final = 500
EXTRA_REASONS: Final = ("more than one JSON document", "unknown field", "more digits than the column has")
OUT_OF_RANGE: Final = "_out_of_range"
BROKEN: Final = "_broken"
WHOLE: Final = "_whole"
"""A record with all its columns, beside those of its payload."""
_MALFORMED: Final = "{"
"""Stands for a text that must not be parsed."""


class Promoted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column lifted out of schemaless JSON."""

    path: str
    """As `get_json_object` takes it, e.g. `$.customer.id`."""
    type: str = "STRING"
    """The column's type, as in DDL."""


class Strictness(Enum):
    """What becomes of a record that says more than its row can hold."""

    LENIENT = "lenient"
    """The rest is left out."""
    RESCUE = "rescue"
    """The row has the record's whole text in the column `_rescued`."""
    STRICT = "strict"
    """The record is dead."""


class PayloadShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a payload becomes: columns of a schema, or the JSON itself with promoted columns."""

    schema: StructType | None
    promoted: dict[str, Promoted] = {}
    required: frozenset[str] = frozenset()
    event_time: str | None = None
    """The column with the event's own time; without one the record's timestamp stands in."""
    dropped_unless: dict[str, str] = {}
    """Conditions by name; records whose row does not fulfil one are dead."""
    strictness: Strictness = Strictness.RESCUE

    @property
    def has_rescued(self) -> bool:
        """Whether rows have the column `_rescued`. Schemaless JSON is kept as it is anyway."""
        return self.schema is not None and self.strictness is Strictness.RESCUE

    def table_schema(self) -> StructType:
        rescued = [StructField(RESCUED, StringType())] if self.has_rescued else []
        return StructType([*parse_ddl(SILVER_ORIGIN_DDL).fields, *self.payload_schema().fields, *rescued])

    def payload_schema(self) -> StructType:
        if self.schema is not None:
            return StructType([StructField(field.name, field.dataType) for field in self.schema.fields])
        promoted = ", ".join(f"`{name}` {column.type}" for name, column in self.promoted.items())
        columns = [*parse_ddl(promoted).fields] if promoted else []
        return StructType([*columns, StructField("value", StringType())])


def judge(records: DataFrame, shape: PayloadShape) -> DataFrame:
    """RECORD_DDL plus `payload` (a struct), `event_time`, `_rescued`, and `reason` with `column_name` and `detail`, which
    are null for good records.

    Key, value and headers are left out of good records: what they gave is in the payload.
    """
    # Tables hold text, and text is UTF-8: other bytes are replaced, as Spark's JSON parser does it.
    text = F.make_valid_utf8(F.col("value").cast("string"))
    checked = records.withColumn(OUT_OF_RANGE, unparsable_column(text, shape.schema or StructType()))
    parsed = _with_broken(checked.withColumn("payload", _payload(text, shape)), shape)
    event_time = _event_time(shape)
    is_object = F.ltrim(text).startswith("{")
    # Parsing a second time is for records that are already under suspicion, and for payloads nothing else parses.
    suspect = ~is_object | _misfit(shape) if shape.schema is not None else F.lit(True)
    out_of_range = F.coalesce(F.col(OUT_OF_RANGE), _absurd(shape))
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(
            suspect & F.try_parse_json(text).isNull(),
            F.when(_unreadable().isNotNull(), "unreadable batch").otherwise("not JSON"),
        )
        .when(~is_object, "not a JSON object")
        .when(out_of_range.isNotNull(), "value out of range")
        .when(_misfit(shape), "does not fit the schema")
        .when(_missing(shape).isNotNull(), "required column missing")
        .when(event_time.isNull(), "no event time")
        .when(is_absurd(event_time), "absurd event time")
        .when(F.col(BROKEN).isNotNull(), "expectation not met")
    )
    extra = _extra(text, shape)
    if shape.strictness is Strictness.STRICT:
        reason = reason.when(extra["reason"].isNotNull(), extra["reason"])
    column_name = (
        F.when(F.col("reason") == "required column missing", _missing(shape))
        .when(F.col("reason") == "does not fit the schema", _misfit_column(text, shape))
        .when(F.col("reason").isin("no event time", "absurd event time"), F.lit(shape.event_time))
        .when(F.col("reason") == "value out of range", F.nullif(out_of_range, F.lit("")))
        .when(F.col("reason").isin(*EXTRA_REASONS), extra["column_name"])
    )
    detail = (
        F.when(F.col("reason") == "required column missing", _missing(shape))
        .when(F.col("reason") == "expectation not met", F.col(BROKEN))
        .when(F.col("reason") == "no event time", F.lit(shape.event_time))
        .when(F.col("reason") == "unreadable batch", _unreadable())
        .when((F.col("reason") == "value out of range") & (out_of_range != ""), out_of_range)
        .when(F.col("reason").isNotNull(), F.substring(text, 1, DETAIL_LENGTH))
    )
    judged = (
        parsed.withColumn("event_time", event_time)
        .withColumn("reason", reason)
        .withColumn("column_name", column_name)
        .withColumn("detail", detail)
    )
    if shape.has_rescued:
        is_more = F.col("reason").isNull() & extra["reason"].isNotNull()
        judged = judged.withColumn(RESCUED, F.when(is_more, text))
    # The raw record goes on only where it is dead: batches are held while two tables are written, and values are large.
    is_dead = F.col("reason").isNotNull()
    return judged.withColumns({name: F.when(is_dead, F.col(name)) for name in ("key", "value", "headers")})


def accepted(judged: DataFrame, shape: PayloadShape) -> DataFrame:
    """The typed rows: SILVER_ORIGIN_DDL, then the payload's columns."""
    names = shape.payload_schema().fieldNames()
    timestamp, _ = timestamp_columns()
    origin = [
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_topic_partition"),
        F.col("offset").alias("_offset"),
        timestamp.alias("_timestamp"),
        F.col("event_time").alias("_event_time"),
    ]
    rescued = [F.col(RESCUED)] if shape.has_rescued else []
    payload = (F.col(f"payload.`{name}`").alias(name) for name in names)
    return judged.where("reason IS NULL").select(*origin, *payload, *rescued)


def dead_letters(judged: DataFrame, failed_time: datetime) -> DataFrame:
    """The rest, whole, with the reason: DEAD_LETTER_DDL."""
    return judged.where("reason IS NOT NULL").select(
        "topic",
        "partition",
        "offset",
        *timestamp_columns(),
        "key",
        "value",
        "headers",
        "reason",
        "column_name",
        "detail",
        F.lit(failed_time).cast("timestamp").alias("failed_time"),
    )


def _payload(text: Column, shape: PayloadShape) -> Column:
    if shape.schema is not None:
        parsable = F.when(F.col(OUT_OF_RANGE).isNull(), text).otherwise(_MALFORMED)
        return _parsed(parsable, shape.schema.fields)
    columns = [
        F.get_json_object(text, column.path).try_cast(column.type).alias(name)
        for name, column in shape.promoted.items()
    ]
    return F.struct(*columns, text.alias("value"))


def _parsed(text: Column, fields: Sequence[StructField]) -> Column:
    wanted = StructType([*(StructField(f.name, f.dataType) for f in fields), StructField(CORRUPT, StringType())])
    return F.from_json(text, wanted, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


def _absurd(shape: PayloadShape) -> Column:
    """The first column with a time that tables do not hold; the event time has a reason of its own."""
    columns = [field for field in shape.payload_schema().fields if field.name != shape.event_time]
    return first_column(F.col("payload"), StructType(columns), is_absurd_leaf)


def _unreadable() -> Column:
    """Why the decoder could not read the batch for which this record stands; null for every true record."""
    found = F.filter("headers", lambda header: header["key"] == UNREADABLE_HEADER)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _misfit(shape: PayloadShape) -> Column:
    return F.col(f"payload.{CORRUPT}").isNotNull() if shape.schema is not None else F.lit(False)


def _misfit_column(text: Column, shape: PayloadShape) -> Column:
    """The first column whose value is not of its type. Each is parsed by itself, which only dead records have to pay for."""
    if shape.schema is None:
        return F.lit(None).cast("string")
    return F.coalesce(
        *(F.when(_parsed(text, [field])[CORRUPT].isNotNull(), F.lit(field.name)) for field in shape.schema.fields)
    )


def _extra(text: Column, shape: PayloadShape) -> dict[str, Column]:
    """Why the row of a good record would not hold all of it, and in which column; null where it does."""
    nothing = F.lit(None).cast("string")
    if shape.schema is None or shape.strictness is Strictness.LENIENT:
        return {"reason": nothing, "column_name": nothing}
    unknown, rounded = unknown_field(text, shape.schema), rounded_column(text, shape.schema, "payload")
    reason = (
        F.when(has_rest(text), EXTRA_REASONS[0])
        .when(unknown.isNotNull(), EXTRA_REASONS[1])
        .when(rounded.isNotNull(), EXTRA_REASONS[2])
    )
    return {"reason": reason, "column_name": F.coalesce(unknown, rounded)}


def _missing(shape: PayloadShape) -> Column:
    """The name of the first required column that is null."""
    names = sorted(shape.required)
    if not names:
        return F.lit(None).cast("string")
    return F.coalesce(*(F.when(F.col(f"payload.`{name}`").isNull(), F.lit(name)) for name in names))


def _with_broken(parsed: DataFrame, shape: PayloadShape) -> DataFrame:
    """`parsed` with `BROKEN`: the name of the first expectation that the row does not meet.

    Conditions are SQL over the payload's columns, so they are resolved where those are the only columns there are.
    """
    if not shape.dropped_unless:
        return parsed.withColumn(BROKEN, F.lit(None).cast("string"))
    broken = F.coalesce(
        *(
            F.when(~F.coalesce(F.expr(condition), F.lit(False)), F.lit(name))
            for name, condition in shape.dropped_unless.items()
        )
    )
    whole = parsed.select(F.struct("*").alias(WHOLE), "payload.*")
    return whole.select(WHOLE, broken.alias(BROKEN)).select(f"{WHOLE}.*", BROKEN)


def _event_time(shape: PayloadShape) -> Column:
    if shape.event_time is None:
        return F.col("timestamp")
    return F.col(f"payload.`{shape.event_time}`").try_cast(TimestampType())
