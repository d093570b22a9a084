"""Records of a stretch of batches that match a filter, decoding as little as possible. Pure: bytes in, matches out.

A batch whose bytes rule out a match is skipped whole; in the others, records are walked by their lengths and only those decoded
whose own bytes do not rule it out. Bytes are believed only if their CRC holds.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import CorruptBatch, Corrupted
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, batch_size_at, has_valid_crc, read_header
from headrace.records.compression import decompress
from headrace.records.filters import RecordFilter
from headrace.records.record import Record, read_record_at


class Match(NamedTuple):
    header: BatchHeader
    record: Record


class Scanned(NamedTuple):
    """`consumed` are the bytes of whole batches; what is behind them is the beginning of the next."""

    matches: list[Match]
    record_count: int
    consumed: int


def scan(data: Buffer, chosen: RecordFilter, *, start: int, end: int) -> Scanned:
    """Records from offset `start` on, below `end`. `Corrupted` for a batch that is not what was written."""
    view = memoryview(data)
    matches: list[Match] = []
    position = count = 0
    while (size := batch_size_at(view, position)) > 0 and position + size <= len(view):
        header = read_header(view, position)
        batch = view[position : position + size]
        position += size
        if header.end_offset <= start or header.base_offset >= end:
            continue
        if not has_valid_crc(batch):
            raise Corrupted(f"the batch at offset {header.base_offset} does not match its CRC")
        if header.is_control or not header.record_count:
            continue
        count += header.record_count
        matches += (
            Match(header, record) for record in _matching(batch, header, chosen) if start <= record.offset < end
        )
    return Scanned(matches, count, position)


def _matching(batch: memoryview, header: BatchHeader, chosen: RecordFilter) -> Iterator[Record]:
    data = bytes(decompress(header.codec, batch[HEADER_SIZE:], size_max=DECOMPRESSED_BYTES_MAX))
    may_match = chosen.may_match
    if not may_match(data):
        return
    position = 0
    try:
        for _ in range(header.record_count):
            # A record's length, as `read_varint` reads it: here for each of millions.
            byte = data[position]
            position += 1
            length, shift = byte & 0x7F, 7
            while byte & 0x80:
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if shift > 35:
                    raise CorruptBatch("the length of a record is longer than five bytes")
            length = (length >> 1) ^ -(length & 1)
            if length < 1 or position + length > len(data):
                raise CorruptBatch("record is cut short")
            if may_match(data[position : position + length]):
                record = read_record_at(data, position, header)
                if chosen.matches(record):
                    yield record
            position += length
    except IndexError as error:
        raise CorruptBatch("record does not parse") from error
