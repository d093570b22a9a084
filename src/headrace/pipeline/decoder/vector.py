"""The numpy kernel: the C kernel's twin, for machines where no compiler was there.

Following record lengths is the only sequential part, a loop of a few byte codes per record. Everything else works on
all records of the sections at once: varints byte by byte, payloads by Arrow's own `take` over an array whose elements
are, alternately, a field and the gap behind it.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder.columns import TIMESTAMP_MS_LIMIT, TIMESTAMP_TYPE, headers_of
from headrace.pipeline.decoder.sections import HEADER_BYTES_MIN, TABLE_WIDTH, Sections
from headrace.records.batch import Buffer

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
_UINT32_MAX: Final = 0xFFFF_FFFF

# One-dimensional numpy arrays throughout; their element types are said where they are made.
Vector = Any


def decode(sections: Sections, *, first: int, end: int, columns: frozenset[str]) -> dict[str, pa.Array]:
    """Columns of the records with offsets in [first, end); `offset` is always among them."""
    table = np.frombuffer(sections.table, np.int64).reshape(-1, TABLE_WIDTH).T
    buffer, starts, stops, counts, base_offset, last_delta, base_timestamp, append_timestamp, is_append = table
    payload, starts, stops = _as_one(sections.buffers, buffer, starts, stops)
    data = np.frombuffer(payload, np.uint8)
    position, limit = _follow_lengths(payload, starts.tolist(), stops.tolist(), counts.tolist())
    section = np.repeat(np.arange(len(counts)), counts)

    _require(position < limit, "a record without attributes")
    timestamp_delta, position = _read_varints(data, position + 1, limit, VARLONG_BYTES_MAX)
    offset_delta, position = _read_varints(data, position, limit, VARINT_BYTES_MAX)
    _check_order(offset_delta, section, last_delta)
    key_start, key_length, position = _read_fields(data, position, limit)
    value_start, value_length, position = _read_fields(data, position, limit)

    offset = base_offset[section] + offset_delta
    kept = np.flatnonzero((offset >= first) & (offset < end))
    arrays = {"offset": pa.array(offset[kept], pa.int64())}
    if "timestamp" in columns:
        timestamp = np.where(
            is_append[section] != 0, append_timestamp[section], base_timestamp[section] + timestamp_delta
        )
        microseconds = np.clip(timestamp[kept], -TIMESTAMP_MS_LIMIT, TIMESTAMP_MS_LIMIT) * 1000
        arrays["timestamp"] = pa.array(microseconds, pa.int64()).view(TIMESTAMP_TYPE)
    if "timestampType" in columns:
        arrays["timestampType"] = pa.array(is_append[section][kept].astype(np.int32), pa.int32())
    if "key" in columns:
        arrays["key"] = _take_fields(payload, key_start[kept], key_length[kept])
    if "value" in columns:
        arrays["value"] = _take_fields(payload, value_start[kept], value_length[kept])
    if "headers" in columns:
        arrays["headers"] = _read_headers(payload, data, position, limit, kept)
    return arrays


def _as_one(buffers: list[Buffer], buffer: Vector, starts: Vector, stops: Vector) -> tuple[Buffer, Vector, Vector]:
    """One buffer with all sections, and where they lie in it. Nothing is copied where there is only one."""
    if len(buffers) == 1:
        return buffers[0], starts, stops
    parts = zip(buffer.tolist(), starts.tolist(), stops.tolist(), strict=True)
    ends = np.cumsum(stops - starts)
    return b"".join([buffers[which][start:stop] for which, start, stop in parts]), ends - (stops - starts), ends


def _follow_lengths(payload: Buffer, starts: list[int], stops: list[int], counts: list[int]) -> tuple[Vector, Vector]:
    """Start and end of every record, lengths themselves left out."""
    bounds: list[int] = []
    append = bounds.append
    for position, stop, count in zip(starts, stops, counts, strict=True):
        for _ in range(count):
            if position >= stop:
                raise CorruptBatch("a batch ends before its last record")
            byte = payload[position]
            position += 1
            size = byte & 0x7F
            shift = 7
            while byte >= 0x80:
                if position >= stop or shift >= 7 * VARINT_BYTES_MAX:
                    raise CorruptBatch("a record length that does not end")
                byte = payload[position]
                position += 1
                size |= (byte & 0x7F) << shift
                shift += 7
            # An odd number is a negative length in zigzag; 32 bits are all there are.
            size &= _UINT32_MAX
            if size & 1 or size >> 1 > stop - position:
                raise CorruptBatch("a record runs past its batch")
            append(position)
            position += size >> 1
            append(position)
        if position != stop:
            raise CorruptBatch("bytes left over at the end of a batch")
    both = np.array(bounds, np.int64)
    return both[0::2], both[1::2]


def _read_varints(data: Vector, position: Vector, limit: Vector, bytes_max: int) -> tuple[Vector, Vector]:
    """A zigzag varint at every position, and the positions behind them."""
    _require(position < limit, "a variable-length number runs past its record")
    byte = data[position]
    raw = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    longer = np.flatnonzero(byte >= 0x80)
    shift = 7
    while longer.size:
        if shift >= 7 * bytes_max:
            raise CorruptBatch(f"a variable-length number is longer than {bytes_max} bytes")
        at = position[longer]
        _require(at < limit[longer], "a variable-length number runs past its record")
        byte = data[at]
        raw[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[longer] = at + 1
        longer = longer[byte >= 0x80]
        shift += 7
    if bytes_max == VARINT_BYTES_MAX:
        raw &= np.uint64(_UINT32_MAX)
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), position


def _read_fields(data: Vector, position: Vector, limit: Vector) -> tuple[Vector, Vector, Vector]:
    """Start and length of a length-prefixed field at every position (-1: null), and the positions behind."""
    length, start = _read_varints(data, position, limit, VARINT_BYTES_MAX)
    _require((length >= -1) & (length <= limit - start), "a field runs past its record")
    return start, length, start + np.maximum(length, 0)


def _check_order(offset_delta: Vector, section: Vector, last_delta: Vector) -> None:
    previous = np.concatenate(([-1], offset_delta[:-1]))
    previous[np.flatnonzero(np.diff(section, prepend=-1))] = -1
    _require((offset_delta > previous) & (offset_delta <= last_delta[section]), "offsets out of order in a batch")


def _take_fields(payload: Buffer, start: Vector, length: Vector) -> pa.Array:
    """Ascending slices of `payload` as one binary array: Arrow copies the bytes, we only say where they lie."""
    bounds = np.zeros(2 * len(start) + 1, np.int32)
    bounds[0:-1:2] = start
    bounds[1::2] = start + np.maximum(length, 0)
    bounds[-1] = bounds[-2] if len(start) else 0
    spans = pa.Array.from_buffers(pa.binary(), 2 * len(start), [None, pa.py_buffer(bounds), pa.py_buffer(payload)], 0)
    return spans.take(pa.array(np.arange(0, 2 * len(start), 2), mask=length < 0))


def _read_headers(payload: Buffer, data: Vector, position: Vector, limit: Vector, kept: Vector) -> pa.Array:
    """Header i of every record that has one, for i = 0, 1, ...; then all of them in the order of their records."""
    count, position = _read_varints(data, position, limit, VARINT_BYTES_MAX)
    _require((count >= 0) & (count <= (limit - position) // HEADER_BYTES_MIN), "a header count that cannot be true")
    rounds: list[Vector] = []
    records = np.flatnonzero(count > 0)
    while records.size:
        key_start, key_length, at = _read_fields(data, position[records], limit[records])
        _require(key_length >= 0, "a header without a key")
        value_start, value_length, at = _read_fields(data, at, limit[records])
        rounds.append(np.stack((records, key_start, key_length, value_start, value_length)))
        position[records] = at
        records = records[count[records] > len(rounds)]
    _require(position == limit, "bytes left over at the end of a record")

    found = np.concatenate(rounds, axis=1) if rounds else np.empty((5, 0), np.int64)
    found = found[:, np.isin(found[0], kept)]
    found = found[:, np.argsort(found[0], kind="stable")]
    ends = np.concatenate(([0], np.cumsum(count[kept]))).astype(np.int32)
    keys = _take_fields(payload, found[1], found[2])
    values = _take_fields(payload, found[3], found[4])
    return headers_of(ends, keys, values)


def _require(holds: Vector, fault: str) -> None:
    if not holds.all():
        raise CorruptBatch(fault)
