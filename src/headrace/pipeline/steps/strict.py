"""JSON payloads to typed rows by Arrow's own parser, for records about which there is nothing to judge.

`split` takes a record only when it is sure that `typed.judge` would accept it with the same row; every other record comes
back as it was, for `judge` to look at. So a rule that is too strict here costs time and never changes a table: numbers in
quotes, odd times, unusual JSON, missing columns, poison all go the long way. Needs no session: it runs on executors.
"""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.pipeline.decoder import ARROW_FIELDS
from headrace.pipeline.steps.typed import PayloadShape, Strictness

TIMESTAMP: Final = ARROW_FIELDS["timestamp"]
PARSED_AS: Final[dict[DataType, pa.DataType]] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    # A time is text in JSON; numbers that stand for times go the long way.
    TimestampType(): pa.string(),
}
"""Types whose JSON both parsers read alike."""

TIME_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])$"
)
TIME_FIRST: Final = pa.scalar(datetime(2, 1, 1, tzinfo=UTC), TIMESTAMP)
TIME_LAST: Final = pa.scalar(datetime(9998, 12, 31, tzinfo=UTC), TIMESTAMP)
"""Years near the limits go the long way, whatever the session's time zone makes of them."""
VALUE_BYTES_MAX: Final = 1024 * 1024
"""Beyond it the limits of Spark's parser might be met, which are not known here."""
NESTING_MAX: Final = 500
"""Half of what Spark's parser takes."""
ROWS_MIN: Final = 32
"""Records that go the long way together with the one that does not parse."""
_NEWLINE, _BRACE, _BRACKET = b"\n{["

# Arrow and numpy arrays carry no useful element types.
Array = Any


class Split(NamedTuple):
    accepted: list[pa.RecordBatch]
    """Rows as the table has them."""
    rest: list[pa.RecordBatch]
    """Records as they came."""


def is_strict(shape: PayloadShape) -> bool:
    """Whether records of this shape can be taken without the long way: flat columns, no conditions in SQL."""
    if shape.schema is None or shape.dropped_unless:
        return False
    kinds = {field.name: field.dataType for field in shape.schema.fields}
    if shape.event_time is not None and kinds.get(shape.event_time) != TimestampType():
        return False
    return all(kind in PARSED_AS for kind in kinds.values())


class StrictParser:
    """Splits batches of records; `shape` must be one of which `is_strict` holds."""

    def __init__(self, shape: PayloadShape) -> None:
        assert shape.schema is not None, "is_strict was asked first"
        self._shape = shape
        self._schema: StructType = shape.schema
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([(field.name, PARSED_AS[field.dataType]) for field in shape.schema.fields]),
            # What a row cannot hold is for `judge` to see, unless nobody wants to know.
            unexpected_field_behavior="ignore" if shape.strictness is Strictness.LENIENT else "error",
        )

    def split(self, records: pa.RecordBatch) -> Split:
        done = Split([], [])
        is_object = _is_plain_object(records.column("value"))
        if pc.all(is_object).as_py():
            self._split(records, done)
        else:
            done.rest.append(records.filter(pc.invert(is_object)))
            self._split(records.filter(is_object), done)
        return done

    def _split(self, records: pa.RecordBatch, done: Split) -> None:
        """Take the whole batch; where it does not parse, its halves, down to a few records around each misfit."""
        if not records.num_rows:
            return
        try:
            is_good, rows = self._judge(records, self._parse(records.column("value")))
        except pa.ArrowInvalid:
            if records.num_rows <= ROWS_MIN:
                done.rest.append(records)
                return
            half = records.num_rows // 2
            self._split(records.slice(0, half), done)
            self._split(records.slice(half), done)
            return
        if pc.all(is_good).as_py():
            done.accepted.append(rows)
        else:
            done.accepted.append(rows.filter(is_good))
            done.rest.append(records.filter(pc.invert(is_good)))

    def _parse(self, values: Array) -> dict[str, Array]:
        """The payload's columns, as JSON has them. Raises `ArrowInvalid` when any value does not fit.

        Every value begins and ends with a brace and holds no newline. One object cannot end in the middle of a value
        and go on in the next, so as many objects as values means one in each.
        """
        values.cast(pa.string())  # raises where it is not UTF-8
        together = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        lines = pc.binary_join(together, b"\n")[0].as_buffer()
        options = pj.ReadOptions(use_threads=False, block_size=lines.size + 1)
        table = pj.read_json(pa.BufferReader(lines), read_options=options, parse_options=self._options)
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("a value holds more than one object")
        # The block is as large as the input, so there is one of it.
        return {name: table.column(name).chunk(0) for name in table.column_names}

    def _judge(self, records: pa.RecordBatch, columns: dict[str, Array]) -> tuple[Array, pa.RecordBatch]:
        """Which records are beyond doubt, and all rows. Raises `ArrowInvalid` for a day that is in no calendar."""
        is_good: Array = pa.array(np.ones(records.num_rows, bool))
        payload: dict[str, Array] = {}
        for field in self._schema.fields:
            column = columns[field.name]
            if isinstance(field.dataType, TimestampType):
                is_time = pc.fill_null(pc.match_substring_regex(column, TIME_PATTERN), True)
                is_good = pc.and_(is_good, is_time)
                column = pc.if_else(is_time, column, None).cast(TIMESTAMP)
            elif isinstance(field.dataType, DoubleType):
                is_good = pc.and_(is_good, pc.fill_null(pc.is_finite(column), True))
            if field.name in self._shape.required:
                is_good = pc.and_(is_good, pc.is_valid(column))
            payload[field.name] = column
        event_time = payload[self._shape.event_time] if self._shape.event_time else records.column("timestamp")
        for time in (event_time, records.column("timestamp")):
            is_usual = pc.and_(pc.greater_equal(time, TIME_FIRST), pc.less_equal(time, TIME_LAST))
            is_good = pc.and_(is_good, pc.fill_null(is_usual, False))
        origin = {
            "_topic": records.column("topic"),
            "_topic_partition": records.column("partition"),
            "_offset": records.column("offset"),
            "_timestamp": records.column("timestamp"),
            "_event_time": event_time,
        }
        return is_good, pa.RecordBatch.from_pydict(origin | payload)


def _is_plain_object(values: Array) -> Array:
    """`{...}` on one line, not too long and not too deep."""
    is_plain = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    is_plain = pc.and_(is_plain, pc.less_equal(pc.binary_length(values), VALUE_BYTES_MAX))
    _, offsets, data = values.buffers()
    if data is None:
        return pc.fill_null(is_plain, False)
    borders = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8)
    has_newline = _count_between(borders, content == _NEWLINE) > 0
    is_deep = _count_between(borders, (content == _BRACE) | (content == _BRACKET)) > NESTING_MAX
    return pc.and_(pc.fill_null(is_plain, False), pa.array(~has_newline & ~is_deep))


def _count_between(borders: Array, found: Array) -> Array:
    """How many of the found bytes lie between each border and the next."""
    return np.diff(np.searchsorted(np.flatnonzero(found), borders))
