"""What the WAL's headers cannot tell once space is reused: producers, transactions, epochs, ends. One file.

A checkpoint is a picture of every partition, each as of an LSN of its own, none older than the checkpoint's. It is written
only after everything in the pictures is durable: one of an append that a crash then loses would make the producer's retry
look like a duplicate.
"""

from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.disk import Disk, replace_file
from headrace.errors import Corrupted
from headrace.log.producers import ProducerSnapshot
from headrace.log.transactions import TransactionSnapshot
from headrace.log.wal.file import storage_errors

_MAGIC: Final = b"HRCP\x00\x01"
NAME: Final = "checkpoint"


class PartitionCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    topic_id: bytes
    index: int
    uploaded_end: int
    end_offset: int
    epoch_starts: list[tuple[int, int]]
    producers: list[ProducerSnapshot]
    transactions: TransactionSnapshot | None
    lsn: int = -1
    """What the WAL has of this partition below is in the picture; -1 in files that do not tell: the checkpoint's own."""


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    ring_id: bytes
    lsn: int
    partitions: list[PartitionCheckpoint]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    body = msgspec.msgpack.encode(checkpoint)
    return _MAGIC + int(crc32c(body)).to_bytes(4, "big") + body


def decode_checkpoint(data: bytes) -> Checkpoint:
    if data[: len(_MAGIC)] != _MAGIC:
        raise Corrupted("not a checkpoint of this version")
    start = len(_MAGIC) + 4
    if crc32c(data[start:]) != int.from_bytes(data[start - 4 : start], "big"):
        raise Corrupted("the checkpoint's CRC does not match")
    return msgspec.msgpack.decode(data[start:], type=Checkpoint)


def write_checkpoint(directory: Path, data: bytes, *, disk: Disk) -> None:
    """Replace the checkpoint; the old one stands until the new one is on disk. Blocking."""
    with storage_errors("write the checkpoint"):
        replace_file(disk, directory / NAME, [data])


def set_aside_checkpoint(directory: Path, *, disk: Disk) -> None:
    """Keep a damaged checkpoint for whoever wants to look at it, and out of everybody's way."""
    disk.rename(directory / NAME, directory / f"{NAME}.damaged")


def read_checkpoint(directory: Path, *, disk: Disk) -> Checkpoint | None:
    path = directory / NAME
    if not disk.exists(path):
        return None
    file = disk.open_to_read(path)
    try:
        return decode_checkpoint(file.read(0, file.size()))
    except Corrupted as error:
        raise Corrupted(
            f"{path}: {error}. It knows producers and transactions that the WAL has no room for any more: "
            "put back a good copy, or remove it to go on without them"
        ) from error
    finally:
        file.close()
