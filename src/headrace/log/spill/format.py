"""Bytes of a spill file: header, table, batches. Pure; see docs/formats/spill.md for the picture.

A file is written under another name, flushed and renamed: under its own name it is whole, or it has rotted. Batches keep
the address they had in the ring, so whoever knows where one was in the WAL finds it here.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import Corrupted, NewerFormat
from headrace.log.wal.format import Entry
from headrace.records.batch import Buffer

VERSION: Final = 1
_MAGIC: Final = b"HRSP"
_HEADER: Final = struct.Struct(">4sHxx16sQQII")
_CRC: Final = struct.Struct(">I")
HEADER_SIZE: Final = _HEADER.size + _CRC.size
_ROW: Final = struct.Struct(">16sIIqiQ")


class SpilledBatch(NamedTuple):
    entry: Entry
    lsn: int
    """Where the batch was in the ring."""


class SpillHeader(NamedTuple):
    ring_id: bytes
    start_lsn: int
    end_lsn: int
    """What was not uploaded of the ring from `start_lsn` up to here is in the file."""
    table_size: int
    table_crc: int


def encode_head(
    ring_id: bytes, *, start_lsn: int, end_lsn: int, rows: Sequence[SpilledBatch], version: int = VERSION
) -> bytes:
    """Header and table; the batches follow in the order of `rows`."""
    table = b"".join(_ROW.pack(*entry, lsn) for entry, lsn in rows)
    body = _HEADER.pack(_MAGIC, version, ring_id, start_lsn, end_lsn, len(table), crc32c(table))
    return body + _CRC.pack(crc32c(body)) + table


def decode_header(data: Buffer) -> SpillHeader:
    body = bytes(data[: _HEADER.size])
    if len(data) < HEADER_SIZE or body[:4] != _MAGIC:
        raise Corrupted("not a spill file")
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(body):
        raise Corrupted("the header of the spill file does not match its CRC")
    _, version, ring_id, start_lsn, end_lsn, table_size, table_crc = _HEADER.unpack(body)
    if version != VERSION:
        raise NewerFormat(f"spill file version {version}; this headrace reads {VERSION}")
    return SpillHeader(ring_id, start_lsn, end_lsn, table_size, table_crc)


def decode_rows(header: SpillHeader, table: Buffer) -> list[SpilledBatch]:
    if len(table) != header.table_size or len(table) % _ROW.size or crc32c(bytes(table)) != header.table_crc:
        raise Corrupted("the table of the spill file does not match its CRC")
    return [SpilledBatch(Entry._make(row[:-1]), row[-1]) for row in _ROW.iter_unpack(table)]
