"""Small batches with a great many records in them."""

import struct

from crc32c import crc32c

from headrace.records.batch import HEADER, HEADER_SIZE, Codec
from headrace.records.compression import compress
from headrace.records.record import write_varint

BOMB_TIME_MS = 1_700_000_000_000


def bomb(count: int, *, key: bytes | None = None, is_sound: bool = False) -> bytes:
    """`count` records in one compressed batch: of one kilobyte when all are the same, some bytes each when they are sound."""
    records = bytearray()
    if not is_sound:
        records = bytearray(_record(0, key) * count)
    else:
        for delta in range(count):
            records += _record(delta, key)
    packed = compress(Codec.ZSTD, bytes(records))
    batch = bytearray(HEADER_SIZE) + packed
    times = (BOMB_TIME_MS, BOMB_TIME_MS + 1)
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, 0, 2, 0, Codec.ZSTD, count - 1, *times, -1, -1, -1, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def _record(delta: int, key: bytes | None) -> bytes:
    body = bytearray(b"\0\0")
    write_varint(delta, body)
    write_varint(-1 if key is None else len(key), body)
    body += (key or b"") + b"\x01\0"
    record = bytearray()
    write_varint(len(body), record)
    return bytes(record + body)
