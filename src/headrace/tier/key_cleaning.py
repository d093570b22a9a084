"""Key compaction of batches: the newest record of each key stays, older ones go. Pure.

Offsets never change. A cleaned batch keeps its base offset, last offset delta, producer and codec; the records that
stay are copied byte for byte, since each carries its own offset and time relative to the batch. Control batches stay,
records of aborted transactions go, and a tombstone goes once readers have had `delete.retention.ms` to see it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, read_header
from headrace.records.builder import rebuild_batch
from headrace.records.compression import decompress
from headrace.records.record import read_varint
from headrace.tier.format.manifest import Aborted


class Cleaned(NamedTuple):
    """What is left of a batch: the same bytes, fewer, or None; and how many records went."""

    batch: Buffer | None
    dropped: int


class Cleaning:
    """One pass over a partition: note every batch in offset order first, then clean each of them."""

    def __init__(self, aborted: Sequence[Aborted], *, tombstones_before_ms: int) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        self._tombstones_before_ms = tombstones_before_ms
        self._newest: dict[bytes, int] = {}

    @property
    def newest(self) -> Mapping[bytes, int]:
        return self._newest

    def note(self, batch: Buffer) -> None:
        header = read_header(batch)
        if header.is_control or self._is_aborted(header):
            return
        for record in _records(header, batch):
            if record.key is not None:
                self._newest[record.key] = header.base_offset + record.offset_delta

    def clean(self, batch: Buffer) -> Cleaned:
        header = read_header(batch)
        if header.is_control:
            return Cleaned(batch, 0)
        if self._is_aborted(header):
            return Cleaned(None, header.record_count)
        data = _data_of(header, batch)
        kept = [record for record in _slices(header, data) if self._stays(header, record)]
        dropped = header.record_count - len(kept)
        if not dropped:
            return Cleaned(batch, 0)
        return Cleaned(_rebuilt(header, data, kept) if kept else None, dropped)

    def _stays(self, header: BatchHeader, record: "_Slice") -> bool:
        if record.key is None:
            return True
        offset = header.base_offset + record.offset_delta
        if self._newest.get(record.key, offset) > offset:
            return False
        if record.is_tombstone:
            return _time_of(header, record) >= self._tombstones_before_ms
        return True

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        ranges = self._aborted.get(header.producer_id, ())
        return any(first <= header.base_offset <= last for first, last in ranges)


class _Slice(NamedTuple):
    """One record's place in the records section, and what cleaning needs of it."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def _records(header: BatchHeader, batch: Buffer) -> Iterator[_Slice]:
    return _slices(header, _data_of(header, batch))


def _data_of(header: BatchHeader, batch: Buffer) -> Buffer:
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], size_max=DECOMPRESSED_BYTES_MAX)


def _slices(header: BatchHeader, data: Buffer) -> Iterator[_Slice]:
    position = 0
    for _ in range(header.record_count):
        start = position
        length, position = read_varint(data, position)
        end = position + length
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key_length, position = read_varint(data, position)
        key = bytes(data[position : position + key_length]) if key_length >= 0 else None
        value_length, _ = read_varint(data, position + max(0, key_length))
        yield _Slice(start, end, timestamp_delta, offset_delta, key, value_length < 0)
        position = end


def _time_of(header: BatchHeader, record: _Slice) -> int:
    if header.is_log_append_time:
        return header.max_timestamp_ms
    return header.base_timestamp_ms + record.timestamp_delta


def _rebuilt(header: BatchHeader, data: Buffer, kept: Sequence[_Slice]) -> bytes:
    body = b"".join(data[record.start : record.end] for record in kept)
    newest_ms = max(_time_of(header, record) for record in kept)
    return rebuild_batch(header._replace(max_timestamp_ms=newest_ms, record_count=len(kept)), body)
