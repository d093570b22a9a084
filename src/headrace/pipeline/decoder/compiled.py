"""The C kernel's caller: makes room, hands over buffers, and wraps what came back as Arrow arrays without a copy.

Room comes from Arrow's memory pool: what a reader has let go of is used again, where fresh pages from the system would
cost as much as filling them does.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder._kernel import decode as decode_into
from headrace.pipeline.decoder.columns import TIMESTAMP_TYPE, headers_of
from headrace.pipeline.decoder.sections import HEADER_BYTES_MIN, Sections

_INT32_SIZE: Final = 4
_INT64_SIZE: Final = 8
_HEADERS_SHARE: Final = 16
"""Headers are expected to be no more than this part of the bytes; otherwise decoding starts over with room for more."""

Room = tuple[pa.Buffer, pa.Buffer, pa.Buffer]
"""Offsets, validity and bytes of a column."""


def decode(sections: Sections, *, first: int, end: int, columns: frozenset[str]) -> dict[str, pa.Array]:
    """Columns of the records with offsets in [first, end); `offset` is always among them."""
    try:
        return _decode(sections, first, end, columns, headers_share=_HEADERS_SHARE)
    except BufferError:
        # Nearly all of it is headers: make as much room for them as the bytes could need.
        return _decode(sections, first, end, columns, headers_share=1)


def _decode(
    sections: Sections, first: int, end: int, columns: frozenset[str], *, headers_share: int
) -> dict[str, pa.Array]:
    rows_max = sections.record_count
    bytes_max = sections.bytes_total
    offset = pa.allocate_buffer(rows_max * _INT64_SIZE)
    timestamp = pa.allocate_buffer(rows_max * _INT64_SIZE) if "timestamp" in columns else None
    timestamp_type = pa.allocate_buffer(rows_max * _INT32_SIZE) if "timestampType" in columns else None
    key = _make_room(rows_max, bytes_max) if "key" in columns else None
    value = _make_room(rows_max, bytes_max) if "value" in columns else None
    header_ends = header_key = header_value = None
    if "headers" in columns:
        header_bytes_max = bytes_max // headers_share
        header_ends = pa.allocate_buffer((rows_max + 1) * _INT32_SIZE)
        header_key = _make_room(header_bytes_max // HEADER_BYTES_MIN, header_bytes_max)
        header_value = _make_room(header_bytes_max // HEADER_BYTES_MIN, header_bytes_max)
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
        arrays["headers"] = headers_of(np.frombuffer(header_ends, np.int32, rows + 1), keys, values)
    return arrays


def _make_room(rows_max: int, bytes_max: int) -> Room:
    offsets = pa.allocate_buffer((rows_max + 1) * _INT32_SIZE)
    # The kernel only sets bits, so they must begin as zeros.
    validity = pa.py_buffer(bytearray(rows_max // 8 + 1))
    return offsets, validity, pa.allocate_buffer(bytes_max)


def _fixed(kind: pa.DataType, rows: int, values: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, values], 0)


def _variable(kind: pa.DataType, rows: int, room: Room, size: int, nulls: int) -> pa.Array:
    offsets, validity, data = room
    return pa.Array.from_buffers(kind, rows, [validity if nulls else None, offsets, data[:size]], nulls)
