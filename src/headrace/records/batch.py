"""Record batch v2: its header, what makes it acceptable, and the two fields a broker stamps.

A batch travels and rests byte-exact but for `base_offset` and `partition_leader_epoch`, which lie outside the
CRC and are stamped in place. Log-append time is the one case that touches bytes inside the CRC.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import (
    CorruptBatch,
    HeadraceError,
    InvalidRecords,
    InvalidTimestamp,
    StoreUnavailable,
    TooLarge,
    UnsupportedCompression,
)
from headrace.file_range import FileRange

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size  # 61
LENGTH_OVERHEAD: Final = 12
"""Bytes before and including `batch_length`: a batch is that much longer than the field says."""
CRC_START: Final = 21
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

_MAGIC_AT: Final = 16
_LENGTH_MIN: Final = 14
"""What the smallest message of any format says of its length."""
_ATTRIBUTES_LOW: Final = 22
"""Position of the attributes' low byte, where all of their bits are."""
CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_RECORD_SIZE_MIN: Final = 7
"""Length, attributes, time, offset, key, value, headers: one byte each at least."""

_length = struct.Struct(">i")
_stamped = struct.Struct(">qii")
_crc = struct.Struct(">I")
_attributes = struct.Struct(">h")
_max_timestamp = struct.Struct(">q")

_new_tuple = tuple.__new__
"""A named tuple without the detour through `_make`: every request makes one."""

Buffer = bytes | bytearray | memoryview
Piece = Buffer | FileRange
"""Batches in memory, or a range of a file that has them."""


def bytes_of(piece: Piece) -> Buffer:
    """What lies in a file is read; `StoreUnavailable` when that fails."""
    if not isinstance(piece, FileRange):
        return piece
    try:
        return piece.read()
    except OSError as error:
        raise StoreUnavailable(f"local object store: {error}") from error


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, field by field, in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; raises `CorruptBatch` when there are not enough bytes."""
    try:
        return _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptBatch(f"{len(buffer) - position} bytes left, a batch header needs {HEADER_SIZE}") from None


def check_batch(batch: Buffer, *, size_max: int) -> BatchHeader:
    """Everything a batch must be before the log takes it from a client.

    Raises `CorruptBatch` where the bytes changed on their way, and `InvalidRecords`, `UnsupportedCompression` or
    `TooLarge` where they are what the client meant and we do not take it. Producer sequences are the partition's
    business, not ours.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _misshapen(batch)
    header = read_header(batch)
    if header.magic != MAGIC or header.batch_length + LENGTH_OVERHEAD != size:
        raise _misshapen(batch)
    if size > size_max:
        raise TooLarge(f"batch of {size} bytes, limit {size_max}")
    if crc32c(memoryview(batch)[CRC_START:]) != header.crc:
        raise CorruptBatch("CRC-32C of the batch does not match")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecords(f"{header.record_count} records with last offset delta {header.last_offset_delta}")
    size_min = 1 if header.attributes & CODEC_MASK else header.record_count * _RECORD_SIZE_MIN
    if size_min > size - HEADER_SIZE:
        # It would take as many offsets as it likes, and no consumer could get past it.
        raise InvalidRecords(f"{header.record_count} records do not fit {size - HEADER_SIZE} bytes")
    if header.attributes & CONTROL:
        raise InvalidRecords("clients do not write control batches")
    if header.producer_id != NO_PRODUCER and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise InvalidRecords(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise UnsupportedCompression(f"unknown compression {header.attributes & CODEC_MASK}")
    return header


def _misshapen(batch: Buffer) -> HeadraceError:
    """Why `batch` is not one whole batch of our message format, told as Kafka tells it."""
    size = len(batch)
    if size < LENGTH_OVERHEAD:
        return InvalidRecords(f"no record batch in {size} bytes")
    length: int = _length.unpack_from(batch, 8)[0]
    said = length + LENGTH_OVERHEAD
    if length < _LENGTH_MIN:
        return CorruptBatch(f"batch says {said} bytes, fewer than any message has")
    magic = batch[_MAGIC_AT] if size > _MAGIC_AT else None
    if magic is not None and magic > MAGIC:
        return CorruptBatch(f"there is no message format {magic}")
    if magic is None or said > size:
        return InvalidRecords(f"no whole record batch: it says {said} bytes, {size} were sent")
    if magic != MAGIC:
        return InvalidRecords(f"message format {magic}; only {MAGIC} is taken")
    if said >= HEADER_SIZE and has_valid_crc(memoryview(batch)[:said]):
        return InvalidRecords(f"{size - said} bytes behind the batch; one batch for each partition is taken")
    return CorruptBatch(f"batch says {said} bytes, {size} were sent")


def check_timestamp(header: BatchHeader, *, now_ms: int, before_ms: int, after_ms: int) -> None:
    """`message.timestamp.before.max.ms` and `.after.max.ms` of the topic, against the batch's newest record."""
    newest = header.max_timestamp_ms
    if newest == NO_TIMESTAMP:
        return
    if newest - now_ms > after_ms or now_ms - newest > before_ms:
        raise InvalidTimestamp(f"timestamp {newest} is too far from the broker's {now_ms}")


def is_transactional(batch: Buffer) -> bool:
    """From the one byte that says so; false for what is too short to be a batch."""
    return len(batch) >= HEADER_SIZE and bool(batch[_ATTRIBUTES_LOW] & TRANSACTIONAL)


def codec_named(batch: Buffer) -> int | None:
    """How the first batch here is packed, be the rest of it right or not; None where no batch of our format begins."""
    if len(batch) < LENGTH_OVERHEAD + _LENGTH_MIN or batch[_MAGIC_AT] != MAGIC:
        return None
    length: int = _length.unpack_from(batch, 8)[0]
    is_here = _LENGTH_MIN <= length <= len(batch) - LENGTH_OVERHEAD
    return batch[_ATTRIBUTES_LOW] & CODEC_MASK if is_here else None


def has_valid_crc(batch: Buffer) -> bool:
    """Whether the bytes at rest are the bytes that were written; never raises."""
    if len(batch) < HEADER_SIZE:
        return False
    crc: int = _crc.unpack_from(batch, 17)[0]
    return int(crc32c(memoryview(batch)[CRC_START:])) == crc


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that the leader assigns, around the length between them. Both lie outside the CRC."""
    _stamped.pack_into(batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Make `batch` one whose records all carry the broker's time (message.timestamp.type=LogAppendTime)."""
    attributes: int = _attributes.unpack_from(batch, 21)[0]
    _attributes.pack_into(batch, 21, attributes | _LOG_APPEND_TIME)
    _max_timestamp.pack_into(batch, 35, now_ms)
    _crc.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def batch_size_at(buffer: Buffer, position: int) -> int:
    """Size of the batch at `position`, or -1 when even its length field is cut off or absurd."""
    if len(buffer) - position < LENGTH_OVERHEAD:
        return -1
    length: int = _length.unpack_from(buffer, position + 8)[0]
    return length + LENGTH_OVERHEAD if length >= HEADER_SIZE - LENGTH_OVERHEAD else -1


def iterate_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Whole batches lying back to back; a cut-off last one is left out, as Kafka's clients do."""
    view = memoryview(buffer)
    position = 0
    while (size := batch_size_at(view, position)) > 0 and position + size <= len(view):
        yield read_header(view, position), view[position : position + size]
        position += size
