"""A block device as the ring: whether it may be one, and whether somebody else has it.

There is no directory entry that says whose a device is, so its bytes have to: only one that is blank is made a ring.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from headrace.errors import Fault, Invalid
from headrace.log.wal.format import BLOCK_SIZE

_BLKSSZGET: Final = 0x1268
"""Asks for the logical block size, the unit of O_DIRECT. The number is in linux/fs.h."""
_INT_SIZE: Final = 4
_LABEL_SIZE: Final = 1024 * 1024
"""Whoever uses a device leaves a mark in here. Some, as btrfs does, leave the first blocks alone."""


def open_device(path: Path, *, capacity: int) -> int:
    """A descriptor that nobody else can get while it is open: no mount, no volume, no other node."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Fault(f"{path} is in use: it is mounted, part of a volume, or the WAL of another node") from error
        raise Fault(f"cannot use {path} as the WAL: {error.strerror}") from error
    try:
        _check(fd, path, capacity)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(fd: int, path: Path, capacity: int) -> None:
    size = os.lseek(fd, 0, os.SEEK_END)
    if size < capacity:
        raise Invalid(f"wal.capacity.bytes is {capacity}, but {path} has only {size} bytes")
    unit = _logical_block_size(fd)
    if unit > BLOCK_SIZE:
        raise Invalid(f"{path} has blocks of {unit} bytes; a WAL is written in blocks of {BLOCK_SIZE}")


def _logical_block_size(fd: int) -> int:
    answer = fcntl.ioctl(fd, _BLKSSZGET, bytes(_INT_SIZE))
    return int.from_bytes(answer, "little")


def is_blank(fd: int) -> bool:
    """Whether the device is nobody's: not a filesystem, a partition table, a volume or a ring."""
    return not any(os.pread(fd, _LABEL_SIZE, 0))


def how_to_wipe(path: Path) -> str:
    return f"wipe it with `dd if=/dev/zero of={path} bs={_LABEL_SIZE} count=1 conv=fsync`"
