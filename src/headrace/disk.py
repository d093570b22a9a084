"""The disk as an argument: what the log asks of a file system, and nothing more.

`OsDisk` is the real one. A simulated one keeps what was not flushed apart, so that it can lose or tear it. Every call
blocks; errors are the operating system's own (`OSError`).
"""

import contextlib
import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview | mmap.mmap
_IOVECS_MAX: Final = 1024


class DiskFile(Protocol):
    """One open file."""

    def read(self, position: int, size: int) -> bytes:
        """Fewer bytes than `size` at the file's end."""
        ...

    def write(self, position: int, data: Buffer) -> int:
        """How much of `data` was taken: a disk that is nearly full takes a part."""
        ...

    def write_through(self, position: int, data: Buffer) -> int:
        """As `write`, and on disk when it returns."""
        ...

    def write_whole(self, pieces: Sequence[Buffer]) -> None:
        """All of `pieces`, one behind the other, from the file's start."""
        ...

    def sync(self) -> None:
        """Everything written so far is on disk when this returns."""
        ...

    def size(self) -> int: ...

    def view(self, size: int) -> memoryview:
        """The first `size` bytes, to be read front to back. It outlives `close`."""
        ...

    def fileno(self) -> int:
        """The descriptor, where there is one."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, *, is_direct: bool = False) -> DiskFile:
        """To read and write; made where it is missing. With `is_direct` past the page cache, if the file system can."""
        ...

    def open_to_read(self, path: Path) -> DiskFile: ...

    def create(self, path: Path) -> DiskFile:
        """To write, and empty, whatever was there."""
        ...

    def exists(self, path: Path) -> bool: ...

    def rename(self, path: Path, new: Path) -> None:
        """In place of `new`, if that is there. On disk after `sync_directory`."""
        ...

    def remove(self, path: Path) -> None:
        """One that is not there is fine."""
        ...

    def names(self, directory: Path) -> list[str]:
        """In order."""
        ...

    def make_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def free_bytes(self, directory: Path) -> int: ...


def replace_file(disk: Disk, path: Path, pieces: Sequence[Buffer]) -> None:
    """Put `pieces` at `path`. What was there stands until they are on disk, and a crash leaves the one or the other."""
    draft = path.with_name(f"{path.name}.new")
    try:
        file = disk.create(draft)
        try:
            file.write_whole(pieces)
            file.sync()
        finally:
            file.close()
        disk.rename(draft, path)
        disk.sync_directory(path.parent)
    except BaseException:
        disk.remove(draft)
        raise


class OsFile:
    def __init__(self, descriptor: int) -> None:
        """`descriptor` is this file's own from here on."""
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def write(self, position: int, data: Buffer) -> int:
        return os.pwritev(self._descriptor, [data], position)

    def write_through(self, position: int, data: Buffer) -> int:
        return os.pwritev(self._descriptor, [data], position, os.RWF_DSYNC)

    def write_whole(self, pieces: Sequence[Buffer]) -> None:
        position = 0
        for start in range(0, len(pieces), _IOVECS_MAX):
            part = pieces[start : start + _IOVECS_MAX]
            end = position + sum(map(len, part))
            position += os.pwritev(self._descriptor, part, position)
            while position < end:  # Seldom: the disk has taken a part.
                position += os.pwrite(self._descriptor, b"".join(part)[position - end :], position)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def view(self, size: int) -> memoryview:
        if not size:
            return memoryview(b"")
        mapped = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_SEQUENTIAL)  # Read well ahead: the disk is what a start waits for.
        return memoryview(mapped)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class OsDisk:
    """The file system of this machine. Files are their owner's alone."""

    def open(self, path: Path, *, is_direct: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if is_direct:
            with contextlib.suppress(OSError):
                return OsFile(os.open(path, flags | os.O_DIRECT, 0o600))
        return OsFile(os.open(path, flags, 0o600))

    def open_to_read(self, path: Path) -> OsFile:
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def create(self, path: Path) -> OsFile:
        return OsFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    def exists(self, path: Path) -> bool:
        return os.access(path, os.F_OK)

    def rename(self, path: Path, new: Path) -> None:
        path.replace(new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, directory: Path) -> int:
        return shutil.disk_usage(directory).free


OS_DISK: Final[Disk] = OsDisk()
