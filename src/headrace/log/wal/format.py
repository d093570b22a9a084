"""Bytes of the WAL ring: superblock, group header, entry table. Pure; see docs/formats/wal.md for the picture.

A group is one flush: `header | batches | entry table | zeros up to the next block`. It starts on a fresh block and a
durable block is never written again, so a torn write can only hurt the group being written.

- The header's CRC is seeded with the ring's random id: bytes inside a record cannot pass for a header, nor can a group
  of an earlier ring in the same file.
- LSNs are logical byte addresses: they never reset, and `lsn % data_size` is the place in the ring.
- The table repeats base offset and leader epoch, which lie outside the batch's own CRC.
"""

import struct
from enum import IntFlag
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import Corrupted
from headrace.records.batch import Buffer

BLOCK_SIZE: Final = 4096
SUPERBLOCK_COUNT: Final = 2
DATA_START: Final = BLOCK_SIZE * SUPERBLOCK_COUNT
VERSION: Final = 1

_SUPERBLOCK: Final = struct.Struct(">8sHxx16sQQQQI")
_SUPERBLOCK_MAGIC: Final = b"HRACEWAL"
_GROUP: Final = struct.Struct(">4sHHQQIIII")
_GROUP_MAGIC: Final = b"HRWG"
_CRC: Final = struct.Struct(">I")
GROUP_HEADER_SIZE: Final = _GROUP.size + _CRC.size
_ENTRY: Final = struct.Struct(">16sIIqi")
ENTRY_SIZE: Final = _ENTRY.size
ENTRY_TAIL: Final = struct.Struct(">Iqi")
"""The part of an entry that changes with each batch; the partition keeps topic id and number packed in front."""
_ENTRY_HEAD: Final = struct.Struct(">16sI")


class Superblock(NamedTuple):
    """What must be known before the first group can be read. Two copies, written in turn."""

    ring_id: bytes
    capacity: int
    """Size of the whole file, superblocks included."""
    sequence: int
    """Counts superblock writes; the valid copy with the higher one is in force."""
    trim_lsn: int
    """First LSN that recovery must read. Flushed before the space below it is used again."""
    sealed_lsn: int
    """End set by whoever took this WAL over; zero when nobody has. What lies above it does not count."""

    @property
    def data_size(self) -> int:
        return self.capacity - DATA_START


class GroupFlags(IntFlag):
    DATA = 0
    IDLE = 1
    """Empty group written when the log falls idle: it vouches for the group before it."""
    END = 2
    """Clean stop: nothing follows."""


class GroupHeader(NamedTuple):
    flags: int
    lsn: int
    previous_lsn: int
    """LSN of the group before, durable when this one was written."""
    payload_size: int
    table_size: int
    table_crc: int

    @property
    def size(self) -> int:
        return padded(GROUP_HEADER_SIZE + self.payload_size + self.table_size)

    @property
    def end_lsn(self) -> int:
        return self.lsn + self.size


class Entry(NamedTuple):
    """One batch of a group, as the table has it."""

    topic_id: bytes
    partition: int
    size: int
    base_offset: int
    leader_epoch: int


def padded(size: int) -> int:
    return (size + BLOCK_SIZE - 1) & ~(BLOCK_SIZE - 1)


def encode_superblock(superblock: Superblock) -> bytes:
    body = _SUPERBLOCK.pack(
        _SUPERBLOCK_MAGIC,
        VERSION,
        superblock.ring_id,
        superblock.capacity,
        superblock.sequence,
        superblock.trim_lsn,
        superblock.sealed_lsn,
        0,
    )
    return (body + _CRC.pack(crc32c(body))).ljust(BLOCK_SIZE, b"\0")


def decode_superblock(block: Buffer) -> Superblock | None:
    """The superblock in `block`, or None when these bytes are none (never written, or torn)."""
    size = _SUPERBLOCK.size
    if len(block) < size + 4 or bytes(block[:8]) != _SUPERBLOCK_MAGIC:
        return None
    if _CRC.unpack_from(block, size)[0] != crc32c(bytes(block[:size])):
        return None
    _, version, ring_id, capacity, sequence, trim_lsn, sealed_lsn, _ = _SUPERBLOCK.unpack_from(block)
    if version != VERSION:
        raise Corrupted(f"WAL format {version}, this headrace reads {VERSION}")
    return Superblock(ring_id, capacity, sequence, trim_lsn, sealed_lsn)


def encode_group_header(header: GroupHeader, ring_seed: int) -> bytes:
    body = _GROUP.pack(
        _GROUP_MAGIC,
        VERSION,
        header.flags,
        header.lsn,
        header.previous_lsn,
        header.payload_size,
        header.table_size,
        header.table_crc,
        0,
    )
    return body + _CRC.pack(crc32c(body, ring_seed))


def decode_group_header(block: Buffer, ring_seed: int) -> GroupHeader | None:
    """The group header at the start of `block`, or None when these bytes are none of this ring."""
    if len(block) < GROUP_HEADER_SIZE or bytes(block[:4]) != _GROUP_MAGIC:
        return None
    if _CRC.unpack_from(block, _GROUP.size)[0] != crc32c(bytes(block[: _GROUP.size]), ring_seed):
        return None
    _, version, flags, lsn, previous_lsn, payload_size, table_size, table_crc, _ = _GROUP.unpack_from(block)
    if version != VERSION:
        raise Corrupted(f"WAL group format {version}, this headrace reads {VERSION}")
    return GroupHeader(flags, lsn, previous_lsn, payload_size, table_size, table_crc)


def ring_seed(ring_id: bytes) -> int:
    return int(crc32c(ring_id))


def entry_head(topic_id: bytes, partition: int) -> bytes:
    return _ENTRY_HEAD.pack(topic_id, partition)


def decode_table(table: Buffer) -> list[Entry]:
    return [Entry._make(row) for row in _ENTRY.iter_unpack(table)]
