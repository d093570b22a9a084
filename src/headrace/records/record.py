"""Single records: read out of a batch, and the values doors hand in and out.

Reading record by record is for the JSON doors, coordinators and the command line. The Kafka door passes batches on as
they lie, and the pipeline decodes them vectorised.
"""

from collections.abc import Iterator

import msgspec

from headrace.errors import CorruptBatch
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, iterate_batches, read_header
from headrace.records.compression import decompress

Headers = tuple[tuple[str, bytes | None], ...]


class NewRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record on its way in; the broker's time is taken when it has none of its own."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it stands in the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(buffer: Buffer, *, size_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Every data record of whole batches lying back to back; control batches are passed over."""
    for header, batch in iterate_batches(buffer):
        if not header.is_control:
            yield from read_batch_records(batch, header, size_max=size_max)


def read_batch_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    size_max: int = DECOMPRESSED_BYTES_MAX,
    with_headers: bool = True,
) -> Iterator[Record]:
    """The records of one batch, control records included. A record may have any number of headers: who does not need them
    saves the time and the memory."""
    header = header or read_header(batch)
    data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], size_max=size_max)
    append_time = header.max_timestamp_ms if header.is_log_append_time else None
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 1 or end > len(data):
                raise CorruptBatch("record is cut short")
            yield _read_record(data, position + 1, header, append_time, with_headers)
            position = end
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch("record does not parse") from error


def read_record_at(data: Buffer, position: int, header: BatchHeader, *, with_headers: bool = True) -> Record:
    """The record whose attributes stand at `position`, right behind its length; for who walks a batch by lengths."""
    append_time = header.max_timestamp_ms if header.is_log_append_time else None
    try:
        return _read_record(data, position + 1, header, append_time, with_headers)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch("record does not parse") from error


def _read_record(
    data: Buffer, position: int, header: BatchHeader, append_time: int | None, with_headers: bool
) -> Record:
    timestamp_delta, position = read_varint(data, position)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = read_varint(data, position)
    headers = []
    for _ in range(count if with_headers else 0):
        name, position = _read_bytes(data, position)
        content, position = _read_bytes(data, position)
        headers.append(((name or b"").decode(), content))
    timestamp_ms = append_time if append_time is not None else header.base_timestamp_ms + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, tuple(headers))


def _read_bytes(data: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise CorruptBatch("record field is cut short")
    return bytes(data[position:end]), end


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    result = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch("varint is longer than ten bytes")


def write_varint(value: int, output: bytearray) -> None:
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        output.append((encoded & 0x7F) | 0x80)
        encoded >>= 7
    output.append(encoded)
