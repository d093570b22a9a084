"""Kafka's primitive types, read from a memoryview and appended to a bytearray.

Readers take `(data, at)` and return the value and the place after it. A length is compared with what is left
before anything is sliced or allocated, because lengths come from strangers. At the end of the data single bytes
and fixed-width reads raise what Python raises; `READ_ERRORS` names those, and whoever decodes a whole message
turns them into `MalformedRequest`, once per message instead of once per field.

Strings come as legacy (int16 length) and compact (varint length + 1), each with a nullable twin; arrays and bytes
likewise, with int32 lengths. Values that do not fit their type fail in `struct` when written: that is our bug.
"""

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from headrace.errors import MalformedRequest
from headrace.limits import WIRE_ARRAY_ITEMS_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview

READ_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_read_int16: Final = _INT16.unpack_from
_read_int32: Final = _INT32.unpack_from


# Lengths


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at
    raise MalformedRequest("varint longer than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_count(data: memoryview, at: int) -> tuple[int, int]:
    """Number of elements of a legacy array. Every element takes a byte or more, so no more than what is left."""
    (count,) = _read_int32(data, at)
    at += 4
    if not 0 <= count <= len(data) - at or count > WIRE_ARRAY_ITEMS_MAX:
        raise MalformedRequest(f"array of {count} elements in {len(data) - at} bytes")
    return count, at


def read_nullable_count(data: memoryview, at: int) -> tuple[int, int]:
    """As `read_count`; -1 is null."""
    (count,) = _read_int32(data, at)
    return (-1, at + 4) if count == -1 else read_count(data, at)


def read_compact_count(data: memoryview, at: int) -> tuple[int, int]:
    """Number of elements of a compact array, bounded like `read_count`."""
    count, at = read_compact_size(data, at)
    if count > WIRE_ARRAY_ITEMS_MAX:
        raise MalformedRequest(f"array of {count} elements in {len(data) - at} bytes")
    return count, at


def read_nullable_compact_count(data: memoryview, at: int) -> tuple[int, int]:
    """As `read_compact_count`; -1 is null."""
    return read_compact_count(data, at) if data[at] else (-1, at + 1)


def read_size(data: memoryview, at: int) -> tuple[int, int]:
    """Number of bytes that follow, which must be there."""
    (size,) = _read_int32(data, at)
    at += 4
    if not 0 <= size <= len(data) - at:
        raise MalformedRequest(f"{size} bytes announced, {len(data) - at} left")
    return size, at


def read_compact_size(data: memoryview, at: int) -> tuple[int, int]:
    """Number of bytes that follow a compact length, which must be there."""
    size = data[at] - 1
    at += 1
    if size > 0x7E:
        size, at = read_uvarint(data, at - 1)
        size -= 1
    if not 0 <= size <= len(data) - at:
        raise MalformedRequest(f"{size} bytes announced, {len(data) - at} left")
    return size, at


def write_count(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def write_compact_count(out: bytearray, count: int) -> None:
    """Write the length of a compact array, string or bytes; -1 is null."""
    if count < 0x7F:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


# Strings


def read_string(data: memoryview, at: int) -> tuple[str, int]:
    (size,) = _read_int16(data, at)
    at += 2
    end = at + size
    if size < 0 or end > len(data):
        raise MalformedRequest(f"string of {size} bytes in {len(data) - at}")
    return str(data[at:end], "utf-8"), end


def read_nullable_string(data: memoryview, at: int) -> tuple[str | None, int]:
    (size,) = _read_int16(data, at)
    if size == -1:
        return None, at + 2
    return read_string(data, at)


def read_compact_string(data: memoryview, at: int) -> tuple[str, int]:
    size, at = read_compact_size(data, at)
    end = at + size
    return str(data[at:end], "utf-8"), end


def read_nullable_compact_string(data: memoryview, at: int) -> tuple[str | None, int]:
    if data[at] == 0:
        return None, at + 1
    return read_compact_string(data, at)


def write_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    out += _INT16.pack(len(encoded))
    out += encoded


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    write_compact_count(out, len(encoded))
    out += encoded


def write_nullable_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


# Bytes are copied out of the data, because they outlive it; records are slices of it, because they are large.


def read_records(data: memoryview, at: int) -> tuple[memoryview, int]:
    size, at = read_size(data, at)
    return data[at : at + size], at + size


def read_nullable_records(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    (size,) = _read_int32(data, at)
    return (None, at + 4) if size == -1 else read_records(data, at)


def read_compact_records(data: memoryview, at: int) -> tuple[memoryview, int]:
    size, at = read_compact_size(data, at)
    return data[at : at + size], at + size


def read_nullable_compact_records(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    return read_compact_records(data, at) if data[at] else (None, at + 1)


def read_bytes(data: memoryview, at: int) -> tuple[bytes, int]:
    view, at = read_records(data, at)
    return bytes(view), at


def read_nullable_bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    view, at = read_nullable_records(data, at)
    return None if view is None else bytes(view), at


def read_compact_bytes(data: memoryview, at: int) -> tuple[bytes, int]:
    view, at = read_compact_records(data, at)
    return bytes(view), at


def read_nullable_compact_bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    view, at = read_nullable_compact_records(data, at)
    return None if view is None else bytes(view), at


def write_bytes(out: bytearray, value: Buffer) -> None:
    out += _INT32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: Buffer) -> None:
    write_compact_count(out, len(value))
    out += value


def write_nullable_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


# Elements of arrays whose count is already known


def read_int32s(data: memoryview, at: int, count: int) -> tuple[list[int], int]:
    if count == 1:
        return [_read_int32(data, at)[0]], at + 4
    end = at + 4 * count
    if end > len(data):
        raise MalformedRequest(f"{count} int32 in {len(data) - at} bytes")
    return list(struct.unpack_from(f">{count}i", data, at)), end


def read_int64s(data: memoryview, at: int, count: int) -> tuple[list[int], int]:
    end = at + 8 * count
    if end > len(data):
        raise MalformedRequest(f"{count} int64 in {len(data) - at} bytes")
    return list(struct.unpack_from(f">{count}q", data, at)), end


def read_strings(data: memoryview, at: int, count: int) -> tuple[list[str], int]:
    values: list[str] = []
    for _ in range(count):
        value, at = read_string(data, at)
        values.append(value)
    return values, at


def read_compact_strings(data: memoryview, at: int, count: int) -> tuple[list[str], int]:
    values: list[str] = []
    for _ in range(count):
        value, at = read_compact_string(data, at)
        values.append(value)
    return values, at


def write_int32s(out: bytearray, values: Sequence[int]) -> None:
    out += _INT32.pack(values[0]) if len(values) == 1 else struct.pack(f">{len(values)}i", *values)


def write_int64s(out: bytearray, values: Sequence[int]) -> None:
    out += struct.pack(f">{len(values)}q", *values)


def write_strings(out: bytearray, values: Sequence[str]) -> None:
    for value in values:
        write_string(out, value)


def write_compact_strings(out: bytearray, values: Sequence[str]) -> None:
    for value in values:
        write_compact_string(out, value)


# Tagged fields


def skip_tags(data: memoryview, at: int) -> int:
    """The place after a section of tagged fields, none of which we know."""
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, _, at = read_tag(data, at)
    return at


def read_tag(data: memoryview, at: int) -> tuple[int, memoryview, int]:
    """One tagged field: its number, its bytes and nothing beyond them, and the place after it."""
    tag, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    end = at + size
    if end > len(data):
        raise MalformedRequest(f"tagged field of {size} bytes in {len(data) - at}")
    return tag, data[at:end], end


def write_tags(out: bytearray, tags: Sequence[tuple[int, Buffer]]) -> None:
    """A section of tagged fields; `tags` must ascend."""
    write_uvarint(out, len(tags))
    for tag, body in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body
