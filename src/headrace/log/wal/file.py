"""The ring's file: blocking positional I/O. Called from other threads than the loop's, or before anything else runs.

Extents are zeroed ahead of the head so that a flush never has to allocate blocks or grow the file (that would cost a
journal commit each time). A 10 GiB ring is not zeroed at once: the file grows with use, so the first acknowledgement
comes at once; how far it is zeroed is simply its size. A device has all its blocks from the start.
"""

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.aligned import fresh_pages, touch
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.disk import OS_DISK, Disk, DiskFile, OsFile, replace_file
from headrace.errors import Corrupted, HeadraceError, Invalid, StorageFailed, StorageFull
from headrace.log.wal.device import how_to_wipe, is_blank, open_device
from headrace.log.wal.format import (
    BLOCK_SIZE,
    DATA_START,
    SUPERBLOCK_COUNT,
    Superblock,
    decode_superblock,
    encode_superblock,
)

_ZERO_EXTENT: Final = 4 * 1024 * 1024
CAPACITY_MIN: Final = 1024 * 1024


class RingFile:
    """One open ring. The superblock in force is `superblock`; data is addressed by LSN."""

    def __init__(
        self,
        path: Path,
        *,
        capacity: int,
        is_direct: bool = False,
        disk: Disk = OS_DISK,
        chance: Chance = SYSTEM_CHANCE,
    ) -> None:
        if capacity < CAPACITY_MIN:
            raise Invalid(f"a WAL of {capacity} bytes is too small, at least {CAPACITY_MIN} are needed")
        self.path = path
        self.is_direct = is_direct
        self._disk = disk
        self._is_device = path.is_block_device()
        self._zero_lock = threading.Lock()
        self._zeros = fresh_pages(_ZERO_EXTENT)
        touch(self._zeros)
        self._files: list[DiskFile] = []
        """All that is open of it."""
        try:
            with storage_errors("open the WAL"):
                self._open(capacity, chance)
        except BaseException:
            self.close()
            raise
        self.data_size = self.superblock.data_size

    def _open(self, capacity: int, chance: Chance) -> None:
        if self._is_device:
            self._file: DiskFile = self._opened(OsFile(open_device(self.path, capacity=capacity)))
            if is_blank(self._file.fileno()):
                self._file.write(0, _new_ring(capacity, chance))
                self._file.sync()
        else:
            self._file = self._opened(self._disk.open(self.path))
            if not self._file.size():
                # Renamed into place: half a superblock would look like a ring that was damaged.
                replace_file(self._disk, self.path, [_new_ring(capacity, chance)])
                self._file = self._opened(self._disk.open(self.path))
        # O_DIRECT where the filesystem allows it; the page cache is the documented fallback.
        self._writer = self._opened(self._disk.open(self.path, is_direct=True)) if self.is_direct else self._file
        """For groups; takes whole blocks from aligned memory where `is_direct`."""
        self._zeroer = self._opened(self._disk.open(self.path, is_direct=True))
        self.superblock = self._load(capacity)
        if self._is_device:
            self.zeroed_end = self.superblock.capacity
        else:
            self.zeroed_end = max(self._file.size() & ~(BLOCK_SIZE - 1), DATA_START)

    def _opened(self, file: DiskFile) -> DiskFile:
        self._files.append(file)
        return file

    def _load(self, capacity: int) -> Superblock:
        superblock = superblock_of(self._file)
        if superblock is None:
            raise Corrupted(
                f"{self.path} has no readable superblock: it is not a WAL, or both copies are damaged; "
                + (
                    f"if nothing on it is needed, {how_to_wipe(self.path)}"
                    if self._is_device
                    else "put back a good copy; or move it away, and the node goes on without what was not uploaded"
                )
            )
        if superblock.capacity != capacity & ~(BLOCK_SIZE - 1):
            raise Invalid(
                f"wal.capacity.bytes is {capacity}, but {self.path} was made with {superblock.capacity}; "
                "a ring cannot change size: set the old value, or drain it and "
                + (how_to_wipe(self.path) if self._is_device else "remove the file")
            )
        return superblock

    def view(self) -> memoryview:
        """As far as it is zeroed, which is as far as anything was ever written."""
        return self._file.view(self.zeroed_end if self.zeroed_end > DATA_START else 0)

    @property
    def write_fd(self) -> int:
        """For a thread that writes groups by itself."""
        return self._writer.fileno()

    def place(self, lsn: int) -> int:
        return DATA_START + lsn % self.data_size

    def write_superblock(self, superblock: Superblock) -> None:
        """Flush `superblock` into the older of the two copies; the other stays valid if this write is torn."""
        superblock = superblock._replace(sequence=self.superblock.sequence + 1)
        copy = superblock.sequence % SUPERBLOCK_COUNT
        with storage_errors("write the WAL superblock"):
            self._file.write(copy * BLOCK_SIZE, encode_superblock(superblock))
            self._file.sync()
        self.superblock = superblock

    def write(self, lsn: int, image: memoryview) -> None:
        """Put `image` at `lsn` and return once the disk has it. Whole blocks, and at an address of such where `is_direct`."""
        place = self.place(lsn)
        with storage_errors("write the WAL"):
            self.zero_until(place + len(image))
            while image:
                written = self._writer.write_through(place, image)
                image = image[written:]
                place += written

    def zero_until(self, end: int) -> None:
        """Make sure the file is zeroed up to `end`; cheap when it is."""
        if end <= self.zeroed_end:
            return
        end = min(end, self.superblock.capacity)
        while self.zeroed_end < end:
            # Locked for one extent at a time: a flush that needs the next one must not wait for those far ahead.
            with self._zero_lock:
                if self.zeroed_end >= end:
                    return
                size = min(_ZERO_EXTENT, self.superblock.capacity - self.zeroed_end)
                with memoryview(self._zeros) as zeros, zeros[:size] as extent:
                    # A disk that is nearly full takes a part: only that part is zeroed.
                    written = self._zeroer.write(self.zeroed_end, extent)
                self._zeroer.sync()
                self.zeroed_end += written

    def sync(self) -> None:
        """What an earlier process wrote and did not live to flush is on disk after this, and may be served."""
        with storage_errors("flush the WAL"):
            self._file.sync()

    def read(self, lsn: int, size: int) -> bytes:
        """Up to `size` bytes at `lsn`; the caller knows that they do not cross the ring's end."""
        with storage_errors("read the WAL"):
            return self._file.read(self.place(lsn), size)

    def close(self) -> None:
        while self._files:
            self._files.pop().close()


def superblock_of(file: DiskFile) -> Superblock | None:
    """The one in force; None when neither copy can be read."""
    blocks = [file.read(index * BLOCK_SIZE, BLOCK_SIZE) for index in range(SUPERBLOCK_COUNT)]
    found = [superblock for block in blocks if (superblock := decode_superblock(block)) is not None]
    return max(found, key=lambda candidate: candidate.sequence, default=None)


def read_superblock(path: Path, *, disk: Disk) -> Superblock:
    """Of a ring that is there, and perhaps somebody else's. Raises `Corrupted`."""
    with storage_errors("read the WAL"):
        file = disk.open_to_read(path)
        try:
            superblock = superblock_of(file)
        finally:
            file.close()
    if superblock is None:
        raise Corrupted(f"{path} has no readable superblock")
    return superblock


def _new_ring(capacity: int, chance: Chance) -> bytes:
    return encode_superblock(Superblock(chance.randbytes(16), capacity & ~(BLOCK_SIZE - 1), 1, 0, 0)) * SUPERBLOCK_COUNT


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """What the operating system says, in our own words."""
    try:
        yield
    except OSError as error:
        raise storage_error(doing, error) from error


def storage_error(doing: str, error: OSError) -> HeadraceError:
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageFailed
    return kind(f"could not {doing}: {error}")
