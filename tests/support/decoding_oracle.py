"""Record batches decoded one byte at a time: slow, obvious, and what both decoder kernels are held against."""

from dataclasses import dataclass

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder.sections import TABLE_WIDTH, Sections

TIMESTAMP_MS_LIMIT = (2**63 - 1) // 1000


@dataclass
class OracleRow:
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]] | None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise CorruptBatch("short")
        taken = self.data[self.position : self.position + count]
        self.position += count
        return taken

    def number(self, bits: int) -> int:
        raw = 0
        for index in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw %= 1 << bits
                return (raw >> 1) if raw % 2 == 0 else -((raw + 1) >> 1)
        raise CorruptBatch("endless number")

    def field(self) -> bytes | None:
        length = self.number(32)
        if length < -1:
            raise CorruptBatch("negative length")
        return None if length == -1 else self.take(length)


def decode_slowly(sections: Sections, *, first: int, end: int, with_headers: bool) -> list[OracleRow]:
    rows: list[OracleRow] = []
    numbers = list(sections.table)
    for at in range(0, len(numbers), TABLE_WIDTH):
        buffer, start, stop, *fields = numbers[at : at + TABLE_WIDTH]
        payload = bytes(sections.buffers[buffer])[start:stop]
        rows += _decode_section(payload, fields, with_headers)
    return [row for row in rows if first <= row.offset < end]


def _decode_section(payload: bytes, fields: list[int], with_headers: bool) -> list[OracleRow]:
    count, base_offset, last_delta, base_timestamp, append_timestamp, is_append = fields
    reader = _Reader(payload)
    rows = []
    previous = -1
    for _ in range(count):
        size = reader.number(32)
        if size < 0:
            raise CorruptBatch("negative record")
        record = _Reader(reader.take(size))
        record.take(1)
        timestamp_delta = record.number(64)
        delta = record.number(32)
        if not previous < delta <= last_delta:
            raise CorruptBatch("order")
        previous = delta
        key, value = record.field(), record.field()
        headers = _decode_headers(record) if with_headers else None
        wrapped = (base_timestamp + timestamp_delta + 2**63) % 2**64 - 2**63
        timestamp = append_timestamp if is_append else wrapped
        bounded = max(-TIMESTAMP_MS_LIMIT, min(TIMESTAMP_MS_LIMIT, timestamp))
        rows.append(OracleRow(base_offset + delta, bounded * 1000, is_append, key, value, headers))
    if reader.left():
        raise CorruptBatch("left over")
    return rows


def _decode_headers(record: _Reader) -> list[tuple[bytes, bytes | None]] | None:
    headers = []
    count = record.number(32)
    if count < 0:
        raise CorruptBatch("negative count")
    for _ in range(count):
        name = record.field()
        if name is None:
            raise CorruptBatch("header without key")
        headers.append((name, record.field()))
    if record.left():
        raise CorruptBatch("left over")
    return headers or None
