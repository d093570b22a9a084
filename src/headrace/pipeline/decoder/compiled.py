"""The C kernel's caller: makes room, hands over buffers, and wraps what came back as Arrow arrays without a copy."""

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder._kernel import decode as decode_into
from headrace.pipeline.decoder.columns import TIMESTAMP_TYPE, headers_of
from headrace.pipeline.decoder.sections import HEADER_BYTES_MIN, Sections

# numpy arrays and Arrow arrays carry no useful element types here.
Room = tuple[Any, Any, Any]


def decode(sections: Sections, *, first: int, end: int, columns: frozenset[str]) -> dict[str, pa.Array]:
    """Columns of the records with offsets in [first, end); `offset` is always among them."""
    rows_max = sections.record_count
    bytes_max = sections.bytes_total
    offset = np.empty(rows_max, np.int64)
    timestamp = np.empty(rows_max, np.int64) if "timestamp" in columns else None
    timestamp_type = np.empty(rows_max, np.int32) if "timestampType" in columns else None
    key = _make_room(rows_max, bytes_max) if "key" in columns else None
    value = _make_room(rows_max, bytes_max) if "value" in columns else None
    header_ends = header_key = header_value = None
    if "headers" in columns:
        # Untouched pages cost nothing, so room for as many headers as the bytes could hold is only address space.
        headers_max = bytes_max // HEADER_BYTES_MIN
        header_ends = np.empty(rows_max + 1, np.int32)
        header_key = _make_room(headers_max, bytes_max)
        header_value = _make_room(headers_max, bytes_max)
    try:
        (
            rows,
            key_bytes,
            key_nulls,
            value_bytes,
            value_nulls,
            header_count,
            header_key_bytes,
            header_value_bytes,
            header_value_nulls,
        ) = decode_into(
            sections.buffers,
            sections.table,
            first,
            end,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            header_ends,
            header_key,
            header_value,
        )
    except ValueError as error:
        raise CorruptBatch(str(error)) from error

    arrays = {"offset": _fixed(pa.int64(), rows, offset)}
    if timestamp is not None:
        arrays["timestamp"] = _fixed(TIMESTAMP_TYPE, rows, timestamp)
    if timestamp_type is not None:
        arrays["timestampType"] = _fixed(pa.int32(), rows, timestamp_type)
    if key is not None:
        arrays["key"] = _variable(pa.binary(), rows, key, key_bytes, key_nulls)
    if value is not None:
        arrays["value"] = _variable(pa.binary(), rows, value, value_bytes, value_nulls)
    if header_ends is not None and header_key is not None and header_value is not None:
        keys = _variable(pa.binary(), header_count, header_key, header_key_bytes, 0)
        values = _variable(pa.binary(), header_count, header_value, header_value_bytes, header_value_nulls)
        arrays["headers"] = headers_of(header_ends[: rows + 1], keys, values)
    return arrays


def _make_room(rows_max: int, bytes_max: int) -> Room:
    offsets = np.empty(rows_max + 1, np.int32)
    validity = np.zeros(rows_max // 8 + 1, np.uint8)
    return offsets, validity, np.empty(bytes_max, np.uint8)


def _fixed(kind: pa.DataType, rows: int, values: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)], 0)


def _variable(kind: pa.DataType, rows: int, room: Room, size: int, nulls: int) -> pa.Array:
    offsets, validity, data = room
    mask = pa.py_buffer(validity) if nulls else None
    return pa.Array.from_buffers(kind, rows, [mask, pa.py_buffer(offsets), pa.py_buffer(data)[:size]], nulls)
