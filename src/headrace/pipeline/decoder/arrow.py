"""`decode`: the way from bytes with batches in them to Arrow record batches."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.pipeline.decoder import vector
from headrace.pipeline.decoder.columns import ARROW_FIELDS
from headrace.pipeline.decoder.sections import AbortedTransaction, Inflated, Isolation, Sections, collect_sections
from headrace.records.batch import Buffer

OFFSET_END: Final = 2**63 - 1
SECTION_BYTES: Final = 4 * 1024 * 1024
"""Payload that becomes one Arrow batch: enough to forget the cost of a call, little enough for a task's memory."""


class Kernel(Protocol):
    def __call__(self, sections: Sections, *, first: int, end: int, columns: frozenset[str]) -> dict[str, pa.Array]: ...


def fastest_kernel() -> Kernel:
    """The C kernel where it was built, its numpy twin elsewhere."""
    try:
        from headrace.pipeline.decoder import compiled
    except ImportError:
        return vector.decode
    return compiled.decode


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
    """
    kernel = kernel or fastest_kernel()
    for sections in collect_sections(
        data,
        first=first,
        end=end,
        isolation=isolation,
        aborted=aborted,
        section_bytes=SECTION_BYTES,
        inflated=inflated or Inflated(),
    ):
        arrays = kernel(sections, first=first, end=end, columns=columns.decoded)
        rows = len(arrays["offset"])
        if not rows:
            continue
        if "topic" in columns.names:
            arrays["topic"] = _repeat_text(topic, rows)
        if "partition" in columns.names:
            arrays["partition"] = _repeat_number(partition, rows)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in columns.names], schema=columns.schema)


def _repeat_number(number: int, rows: int) -> pa.Array:
    # Not `pa.array`: it imports pandas to see whether it was given some of it, half a second in every worker.
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))], 0)


def _repeat_text(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    ends: Any = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(encoded * rows)], 0)
