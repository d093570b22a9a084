"""The replication batch: many records in one binary piece, for bulk transfer.

    base offset 8 | batch length 4 | leader epoch 4 | CRC-32 4 | attributes 1 | last offset delta 4 | records
    record: offset 8 | size 4 | value

Numbers are big-endian; length and CRC (IEEE) cover the record section only. Clients see epoch 0 and attributes
0. Between nodes the header carries the real epoch, and attribute bit 4 says that each value is a whole Kafka
batch, so that keys, headers and timestamps survive.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.errors import CorruptBatch

HEADER: Final = struct.Struct(">qiiIBi")
RECORD_HEADER: Final = struct.Struct(">qi")
KAFKA_BATCHES: Final = 1 << 4
"""Attribute bit: each record's value is a Kafka record batch v2."""
LEADER_EPOCH_MAX: Final = 2**31 - 1


class ReplicationRecord(NamedTuple):
    offset: int
    value: bytes


class ReplicationBatch(NamedTuple):
    leader_epoch: int
    attributes: int
    records: list[ReplicationRecord]


class UnexpectedEnd(CorruptBatch, EOFError):
    """Fewer or more bytes than the header promises."""


class ReplicationBatchCRC(CorruptBatch):
    def __init__(self) -> None:
        super().__init__("protocol: replication batch CRC mismatch")


def encode_replication_batch(
    records: Sequence[ReplicationRecord], *, leader_epoch: int = 0, attributes: int = 0
) -> bytes | None:
    """The batch, or None for no records. The epoch has four bytes here: it may not grow past 2**31 - 1."""
    if not records:
        return None
    if not 0 <= leader_epoch <= LEADER_EPOCH_MAX:
        raise CorruptBatch(f"leader epoch {leader_epoch} does not fit a replication batch")
    section = b"".join([RECORD_HEADER.pack(offset, len(value)) + value for offset, value in records])
    base = records[0].offset
    crc = zlib.crc32(section)
    header = HEADER.pack(base, len(section), leader_epoch, crc, attributes, records[-1].offset - base)
    return header + section


def decode_replication_batch(data: bytes | memoryview) -> list[ReplicationRecord]:
    """The records, up to the first whose size cannot be: what the Go function of this name returns."""
    batch, _ = _decode(data)
    return batch.records


def decode_replication_batch_strictly(data: bytes | memoryview) -> ReplicationBatch:
    """For replication: a batch that is not whole to the last byte, or contradicts its header, is refused."""
    batch, trailing = _decode(data)
    if trailing:
        raise CorruptBatch(f"replication batch: {trailing} bytes after record {len(batch.records)} are no record")
    if not batch.records:
        raise CorruptBatch("replication batch without records")
    base, _, _, _, _, last_delta = HEADER.unpack_from(memoryview(data))
    first, last = batch.records[0].offset, batch.records[-1].offset
    if first != base or last - base != last_delta:
        raise CorruptBatch(f"replication batch: header says {base} to {base + last_delta}, records {first} to {last}")
    return batch


def _decode(data: bytes | memoryview) -> tuple[ReplicationBatch, int]:
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise UnexpectedEnd("unexpected EOF")
    _, length, leader_epoch, crc, attributes, _ = HEADER.unpack_from(view)
    section = view[HEADER.size :]
    if len(section) != length:
        raise UnexpectedEnd("unexpected EOF")
    if zlib.crc32(section) != crc:
        raise ReplicationBatchCRC
    records: list[ReplicationRecord] = []
    position = 0
    while position + RECORD_HEADER.size <= length:
        offset, size = RECORD_HEADER.unpack_from(section, position)
        start = position + RECORD_HEADER.size
        if size < 0 or start + size > length:
            break
        records.append(ReplicationRecord(offset, bytes(section[start : start + size])))
        position = start + size
    return ReplicationBatch(leader_epoch, attributes, records), length - position
