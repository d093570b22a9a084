"""`decode`: the way from bytes with batches in them to Arrow record batches."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.compiled import compiled
from headrace.errors import CorruptBatch
from headrace.pipeline.decoder import vector
from headrace.pipeline.decoder.columns import ARROW_FIELDS, HEADERS_TYPE, TIMESTAMP_MS_LIMIT, TIMESTAMP_TYPE
from headrace.pipeline.decoder.sections import (
    AbortedTransaction,
    Inflated,
    Isolation,
    Sections,
    Unreadable,
    collect_sections,
)
from headrace.records.batch import Buffer, read_header

OFFSET_END: Final = 2**63 - 1
SECTION_BYTES: Final = 4 * 1024 * 1024
"""Payload that becomes one Arrow batch: enough to forget the cost of a call, little enough for a task's memory."""
UNREADABLE_HEADER: Final = "headrace.unreadable"
"""Header of the row that stands for a batch nobody can read. Its value says why."""


class Kernel(Protocol):
    def __call__(self, sections: Sections, *, first: int, end: int, columns: frozenset[str]) -> dict[str, pa.Array]: ...


def fastest_kernel() -> Kernel:
    """The C kernel where it was built and is wanted, its numpy twin elsewhere."""
    if compiled("headrace.pipeline.decoder._kernel") is None:
        return vector.decode
    from headrace.pipeline.decoder.compiled import decode as compiled_decode

    return compiled_decode


class Columns:
    """The columns a reader wants, and the Arrow schema its batches have."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        unknown = [name for name in self.names if name not in ARROW_FIELDS]
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(ARROW_FIELDS)}")
        self.schema = pa.schema([pa.field(name, ARROW_FIELDS[name]) for name in self.names])
        self.decoded = frozenset(self.names) - {"topic", "partition"}


def decode(
    data: Buffer,
    *,
    topic: str,
    partition: int,
    columns: Columns,
    first: int = 0,
    end: int = OFFSET_END,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    aborted: Iterable[AbortedTransaction] = (),
    kernel: Kernel | None = None,
    inflated: Inflated | None = None,
) -> Iterator[pa.RecordBatch]:
    """Records of [first, end) as Arrow batches, in offset order.

    `data` holds whole batches back to back; a cut-off last one is ignored. Raises `CorruptBatch` on the first byte
    that cannot be right, after the batches before it have been given out. Who decodes again and again hands over the
    same `inflated`.

    A batch that its producer sent with a valid CRC and records that cannot be read comes out as one row, at the batch's
    first offset: the value is the whole batch, and the header `UNREADABLE_HEADER` says what is wrong with it. An error
    would stop every reader of the partition there for good.
    """
    kernel = kernel or fastest_kernel()
    for found in collect_sections(
        data,
        first=first,
        end=end,
        isolation=isolation,
        aborted=aborted,
        section_bytes=SECTION_BYTES,
        inflated=inflated or Inflated(),
    ):
        for arrays in _walk(found, kernel, first, end, columns.decoded):
            rows = len(arrays["offset"])
            if not rows:
                continue
            if "topic" in columns.names:
                arrays["topic"] = _repeat_text(topic, rows)
            if "partition" in columns.names:
                arrays["partition"] = _repeat_number(partition, rows)
            yield pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns.schema)


def _walk(
    found: Sections | Unreadable, kernel: Kernel, first: int, end: int, columns: frozenset[str]
) -> Iterator[dict[str, pa.Array]]:
    if isinstance(found, Unreadable):
        yield _unreadable_row(found, first, end)
        return
    try:
        yield kernel(found, first=first, end=end, columns=columns)
        return
    except CorruptBatch as error:
        reason = str(error)
    if len(found.batches) > 1:
        for alone in found.singly():
            yield from _walk(alone, kernel, first, end, columns)
        return
    (batch,) = found.batches
    yield _unreadable_row(Unreadable(read_header(batch), batch, reason), first, end)


def _unreadable_row(found: Unreadable, first: int, end: int) -> dict[str, pa.Array]:
    """All columns. No row where the batch begins before `first`: whoever reads from its beginning has it."""
    header = found.header
    is_here = first <= header.base_offset < end
    time_ms = max(-TIMESTAMP_MS_LIMIT, min(header.max_timestamp_ms, TIMESTAMP_MS_LIMIT))
    row = {
        "offset": pa.array([header.base_offset], pa.int64()),
        "timestamp": pa.array([time_ms * 1000], pa.int64()).view(TIMESTAMP_TYPE),
        "timestampType": pa.array([int(header.is_log_append_time)], pa.int32()),
        "key": pa.nulls(1, pa.binary()),
        "value": pa.array([bytes(found.batch)], pa.binary()),
        "headers": pa.array([[{"key": UNREADABLE_HEADER, "value": found.reason.encode()}]], HEADERS_TYPE),
    }
    return {name: column if is_here else column.slice(0, 0) for name, column in row.items()}


def _repeat_number(number: int, rows: int) -> pa.Array:
    # Not `pa.array`: it imports pandas to see whether it was given some of it, half a second in every worker.
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))], 0)


def _repeat_text(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    ends: Any = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(encoded * rows)], 0)
