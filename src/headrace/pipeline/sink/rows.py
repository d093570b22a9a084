"""Rows on their way from a task to the transaction: checked where they are, packed as Arrow."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.errors import TooLarge
from headrace.pipeline.source.errors import InvalidOption

COLUMNS: Final = ("key", "value", "topic", "partition", "headers")
_TEXT: Final = ("string", "large_string", "binary", "large_binary")


class OutgoingRecord(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: list[tuple[str, bytes | None]]


def check_columns(names: Sequence[str], *, has_topic: bool) -> None:
    """As Spark's Kafka sink has it: `value` must be there, and a topic, by column or by option."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InvalidOption(f"the sink takes the columns {', '.join(COLUMNS)}, not {', '.join(unknown)}")
    if "value" not in names:
        raise InvalidOption("the sink needs a column named value")
    if "topic" not in names and not has_topic:
        raise InvalidOption("the sink needs a column named topic, or the option topic")


def pack(batches: Iterable[pa.RecordBatch], *, bytes_max: int) -> bytes | None:
    """All of a task's rows as one Arrow stream, or None when there are none. Raises `TooLarge`."""
    sink = pa.BufferOutputStream()
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in batches:
        if writer is None:
            _check_types(batch.schema)
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
        if sink.tell() > bytes_max:
            raise TooLarge(
                f"more than {bytes_max} bytes in one micro-batch of the sink; lower maxOffsetsPerTrigger or raise "
                "batchBytesMax"
            )
    if writer is None:
        return None
    writer.close()
    return bytes(sink.getvalue())


def unpack(packed: Iterable[bytes], *, topic: str | None) -> Iterator[OutgoingRecord]:
    for stream in packed:
        for batch in pa.ipc.open_stream(stream):
            for row in batch.to_pylist():
                yield _record(row, topic)


def _record(row: dict[str, Any], topic: str | None) -> OutgoingRecord:
    # The option wins over the column, as in Spark's Kafka sink.
    destination = topic or row.get("topic")
    if not destination:
        raise InvalidOption("a row has no topic, and the option topic is not given")
    return OutgoingRecord(
        topic=destination,
        key=_bytes(row.get("key")),
        value=_bytes(row["value"]),
        partition=row.get("partition"),
        headers=[(header["key"], header["value"]) for header in row.get("headers") or ()],
    )


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _check_types(schema: pa.Schema) -> None:
    for name in ("key", "value", "topic"):
        if name in schema.names and str(schema.field(name).type) not in _TEXT:
            raise InvalidOption(f"column {name} must be STRING or BINARY, not {schema.field(name).type}")
