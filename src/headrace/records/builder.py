"""Batches made by the broker itself: for the JSON doors, the coordinators and transaction markers."""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from headrace.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Codec,
)
from headrace.records.compression import compress
from headrace.records.record import NewRecord, write_varint

_crc = struct.Struct(">I")
_control_key = struct.Struct(">hh")
_control_value = struct.Struct(">hi")
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1


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
    """One batch of `records` in order, base offset 0, ready for the log to stamp."""
    times = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
    base_time = times[0]
    body = bytearray()
    for index, record in enumerate(records):
        _write_record(body, record, index, times[index] - base_time)
    attributes = codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    packed = compress(codec, body) if codec else body
    batch = bytearray(HEADER.size + len(packed))
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_OVERHEAD,
        -1,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_time,
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER.size :] = packed
    _crc.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


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


def is_commit_marker(key: bytes) -> bool:
    marker: int = _control_key.unpack_from(key)[1]
    return marker == COMMIT_MARKER


def coordinator_epoch_of(value: bytes) -> int:
    """Which life of the coordinator wrote the marker that has this value."""
    epoch: int = _control_value.unpack_from(value)[1]
    return epoch


def _write_record(body: bytearray, record: NewRecord, index: int, time_delta: int) -> None:
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


def _write_bytes(data: bytes | None, output: bytearray) -> None:
    if data is None:
        write_varint(-1, output)
        return
    write_varint(len(data), output)
    output += data
