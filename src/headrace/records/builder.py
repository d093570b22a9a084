"""Batches made by the broker itself: for the JSON doors, the coordinators and transaction markers."""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
)
from headrace.records.compression import compress
from headrace.records.record import NewRecord, write_varint


def _written(value: int) -> bytes:
    output = bytearray()
    write_varint(value, output)
    return bytes(output)


_crc = struct.Struct(">I")
_control_key = struct.Struct(">hh")
_control_value = struct.Struct(">hi")
_SMALL_VARINTS: Final = tuple(_written(value) for value in range(1024))
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
GAP_OFFSETS_MAX: Final = 2**31 - 1
"""Most offsets that one batch can span: the field is a signed 32-bit integer."""


class BatchBuilder:
    """A batch that grows record by record, base offset 0, ready for the log to stamp."""

    __slots__ = ("_base_ms", "_body", "_max_ms", "count")

    def __init__(self) -> None:
        self._body = bytearray()
        self._base_ms = 0
        self._max_ms = 0
        self.count = 0

    def add(self, record: NewRecord, *, now_ms: int) -> None:
        time_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        if not self.count:
            self._base_ms = self._max_ms = time_ms
        elif time_ms > self._max_ms:
            self._max_ms = time_ms
        _write_record(self._body, record, self.count, time_ms - self._base_ms)
        self.count += 1

    def build(
        self,
        *,
        codec: int = Codec.NONE,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        attributes: int = 0,
    ) -> bytearray:
        packed = compress(codec, self._body) if codec else self._body
        batch = bytearray(HEADER.size + len(packed))
        HEADER.pack_into(
            batch,
            0,
            0,
            len(batch) - LENGTH_OVERHEAD,
            -1,
            MAGIC,
            0,
            codec | attributes,
            self.count - 1,
            self._base_ms,
            self._max_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.count,
        )
        batch[HEADER.size :] = packed
        _crc.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
        return batch


def build_batch(
    records: Sequence[NewRecord],
    *,
    now_ms: int,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of `records`, in order."""
    builder = BatchBuilder()
    for record in records:
        builder.add(record, now_ms=now_ms)
    return builder.build(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=(TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0),
    )


def rebuild_batch(header: BatchHeader, body: Buffer) -> bytes:
    """The batch that `header` describes, with the records section `body` in the clear; it is compressed as the header says.

    Offsets, producer and times are those of the header; its length and CRC are made anew.
    """
    if not header.record_count:
        # Nothing to decompress: readers pass over it.
        header = header._replace(attributes=header.attributes & ~CODEC_MASK)
    packed = compress(header.codec, body) if header.codec else body
    batch = bytearray(HEADER.pack(*header._replace(batch_length=HEADER.size - LENGTH_OVERHEAD + len(packed))))
    batch += packed
    _crc.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def build_marker(
    *, is_commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The control batch that ends a transaction in one partition; it occupies one offset."""
    marker = NewRecord(
        key=_control_key.pack(0, COMMIT_MARKER if is_commit else ABORT_MARKER),
        value=_control_value.pack(0, coordinator_epoch),
    )
    return build_batch(
        [marker],
        now_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_gap(offset_count: int) -> bytearray:
    """A batch without records over `offset_count` offsets, as Kafka's log cleaner leaves them: clients pass over it.

    It has no time, so that no search by time and no retention by time ever meets it as the newest.
    """
    assert 0 < offset_count <= GAP_OFFSETS_MAX
    batch = bytearray(HEADER.size)
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_OVERHEAD,
        -1,
        MAGIC,
        0,
        Codec.NONE,
        offset_count - 1,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER,
        -1,
        NO_SEQUENCE,
        0,
    )
    _crc.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def is_commit_marker(key: bytes) -> bool:
    marker: int = _control_key.unpack_from(key)[1]
    return marker == COMMIT_MARKER


def coordinator_epoch_of(value: bytes) -> int:
    """Which life of the coordinator wrote the marker that has this value."""
    epoch: int = _control_value.unpack_from(value)[1]
    return epoch


def _write_record(body: bytearray, record: NewRecord, index: int, time_delta: int) -> None:
    value = record.value
    if record.key is None and not record.headers and value is not None and time_delta == 0:
        # What the JSON doors bring, one at a time and tens of thousands a second.
        place, size = _varint(index), _varint(len(value))
        body += b"".join((_varint(len(place) + len(size) + len(value) + 4), b"\0\0", place, b"\1", size, value, b"\0"))
        return
    content = bytearray(1)
    write_varint(time_delta, content)
    write_varint(index, content)
    _write_bytes(record.key, content)
    _write_bytes(record.value, content)
    write_varint(len(record.headers), content)
    for name, value in record.headers:
        _write_bytes(name.encode(), content)
        _write_bytes(value, content)
    write_varint(len(content), body)
    body += content


def _varint(value: int) -> bytes:
    """Of a size or an index."""
    if value < len(_SMALL_VARINTS):
        return _SMALL_VARINTS[value]
    return _written(value)


def _write_bytes(data: bytes | None, output: bytearray) -> None:
    if data is None:
        write_varint(-1, output)
        return
    write_varint(len(data), output)
    output += data
