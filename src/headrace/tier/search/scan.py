"""Records of a stretch of batches that match a filter, decoding as little as possible. Pure: bytes in, matches out.

A batch whose bytes rule out a match is skipped whole; so are groups of records in the others, and only those records are decoded
whose own bytes do not rule it out. Bytes are believed only if their CRC holds.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from headrace.errors import Corrupted
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, batch_size_at, has_valid_crc, read_header
from headrace.records.compression import decompress
from headrace.records.filters import RecordFilter
from headrace.records.record import Record, read_record_at, read_varint
from headrace.records.walk import record_ends

_PARTS: Final = 8
"""That a group of records is divided into. Fewer would have the bytes looked at more often, more would rule out less at once."""


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
    if not chosen.may_match(data):
        return
    bounds = [0, *record_ends(data, header.record_count)]
    for number in _left_over(data, bounds, chosen.may_match):
        _, position = read_varint(data, bounds[number])
        record = read_record_at(data, position, header)
        if chosen.matches(record):
            yield record


def _left_over(data: bytes, bounds: Sequence[int], may_match: Callable[[bytes], bool]) -> Iterator[int]:
    """Numbers of the records that may match, in order, of a batch that may. Whole groups are ruled out by one look at their bytes, from large
    ones to small: of a batch in which few match, few are looked at one by one."""
    groups = _parts(0, len(bounds) - 1)
    while groups:
        first, last = groups.pop()
        if not may_match(data[bounds[first] : bounds[last]]):
            continue
        if last - first == 1:
            yield first
        else:
            groups += _parts(first, last)


def _parts(first: int, last: int) -> list[tuple[int, int]]:
    """Of a group of records, the last one first."""
    step = -(-(last - first) // _PARTS)
    return [(at, min(at + step, last)) for at in range(first, last, step)][::-1]
