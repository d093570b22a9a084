"""A disk that keeps only what it was told to keep.

A process sees the page cache: it survives the process. What the disk itself has is kept apart: data since the last flush of
its file, and names since the last flush of their directory, are lost or torn by a power cut, as the dice say. A job that a
kill or a power cut interrupts ends between two of its calls, or in the middle of a write.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headrace.disk import Buffer

SECTOR: Final = 512
_PLENTY: Final = 1 << 40


class Died(BaseException):
    """The process ends here: nobody catches it."""


class Inode:
    """One file's bytes: as a process sees them, and as the disk has them."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: list[tuple[int, bytes]] = []
        """Written since the last flush."""

    def put(self, position: int, data: bytes, *, is_through: bool) -> None:
        _put(self.cached, position, data)
        if is_through:
            _put(self.durable, position, data)
        else:
            self.dirty.append((position, data))

    def flush(self) -> None:
        for position, data in self.dirty:
            _put(self.durable, position, data)
        self.dirty.clear()

    def lose_power(self, chance: random.Random) -> None:
        for position, data in self.dirty:
            if chance.random() < 0.5:
                _put(self.durable, *(torn(position, data, chance) if chance.random() < 0.5 else (position, data)))
        self.dirty.clear()
        self.cached = bytearray(self.durable)


Names = dict[Path, Inode]
_Change = tuple[Path, Callable[[Names], object]]


class SimulatedDisk:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names: Names = {}
        self._durable: Names = {}
        self._changes: list[_Change] = []
        """Of names, with their directory, since its last flush."""
        self.is_full = False
        self.failure: int | None = None
        """The error number that every flush ends with, if any does."""
        self._steps_left: int | None = None

    # -- the port ------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, is_direct: bool = False) -> "SimulatedFile":
        if path not in self._names:
            return self.create(path)
        return SimulatedFile(self, self._names[path])

    def open_to_read(self, path: Path) -> "SimulatedFile":
        return SimulatedFile(self, self._found(path))

    def create(self, path: Path) -> "SimulatedFile":
        self.step()
        inode = Inode()
        self._change(path, lambda names: names.__setitem__(path, inode))
        return SimulatedFile(self, inode)

    def exists(self, path: Path) -> bool:
        return path in self._names

    def rename(self, path: Path, new: Path) -> None:
        self.step()
        inode = self._found(path)

        def move(names: Names) -> None:
            names.pop(path, None)
            names[new] = inode

        self._change(new, move)

    def remove(self, path: Path) -> None:
        self.step()
        if path in self._names:
            self._change(path, lambda names: names.pop(path, None))

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._names if path.parent == directory)

    def make_directory(self, path: Path) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        self.step()
        self.require_health()
        for directory, change in self._changes:
            if directory == path:
                change(self._durable)
        self._changes = [each for each in self._changes if each[0] != path]

    def free_bytes(self, directory: Path) -> int:
        return 0 if self.is_full else _PLENTY

    # -- faults --------------------------------------------------------------------------------------------------

    def interrupt(self, work: Callable[[], object]) -> None:
        """Do a part of `work`, none or all of it included: whoever asked for it is dead by now."""
        self._steps_left = self._chance.randrange(6)
        try:
            work()
        except Died:
            pass
        except Exception as error:
            del error  # Nobody is left to hear of it.
        finally:
            self._steps_left = None

    def lose_power(self) -> None:
        """What was not flushed is lost, as the dice say. Names change in the order in which they were changed."""
        for _, change in self._changes[: self._chance.randrange(len(self._changes) + 1)]:
            change(self._durable)
        self._changes.clear()
        for inode in {id(each): each for each in self._durable.values()}.values():
            inode.lose_power(self._chance)
        self._names = dict(self._durable)

    def place(self, path: Path) -> None:
        """Somebody else puts an empty file there, and flushes."""
        self._names[path] = self._durable[path] = Inode()

    def wipe(self) -> None:
        """Another disk is in its place."""
        self._names, self._durable, self._changes = {}, {}, []

    def rot(self, path: Path, start: int) -> None:
        """One bit of a file, at or behind `start`, is not what it was."""
        inode = self._names.get(path)
        if inode is None or len(inode.cached) <= start:
            return
        used = len(inode.cached.rstrip(b"\0"))
        place = self._chance.randrange(start, max(used, start + 1))
        for image in (inode.cached, inode.durable):
            if place < len(image):
                image[place] ^= 1 << self._chance.randrange(8)

    # -- for its files -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Before anything changes: the end of a job may have come."""
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise Died

    def torn(self, position: int, data: bytes) -> tuple[int, bytes] | None:
        """What comes of a write during which the process ends; None when it does not."""
        return torn(position, data, self._chance) if self._steps_left == 0 else None

    def require_health(self) -> None:
        if self.failure is not None:
            raise OSError(self.failure, os.strerror(self.failure))

    def require_space(self, inode: Inode, end: int) -> None:
        if self.is_full and end > len(inode.cached):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _found(self, path: Path) -> Inode:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._names[path]

    def _change(self, path: Path, change: Callable[[Names], object]) -> None:
        change(self._names)
        self._changes.append((path.parent, change))


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._inode.cached[position : position + size])

    def write(self, position: int, data: Buffer) -> int:
        return self._write(position, bytes(data), is_through=False)

    def write_through(self, position: int, data: Buffer) -> int:
        self._disk.require_health()
        return self._write(position, bytes(data), is_through=True)

    def _write(self, position: int, data: bytes, *, is_through: bool) -> int:
        self._disk.require_space(self._inode, position + len(data))
        if (part := self._disk.torn(position, data)) is not None:
            self._inode.put(*part, is_through=is_through)
        self._disk.step()
        self._inode.put(position, data, is_through=is_through)
        return len(data)

    def write_whole(self, pieces: Sequence[Buffer]) -> None:
        self.write(0, b"".join(pieces))

    def sync(self) -> None:
        self._disk.step()
        self._disk.require_health()
        self._inode.flush()

    def size(self) -> int:
        return len(self._inode.cached)

    def view(self, size: int) -> memoryview:
        return memoryview(bytes(self._inode.cached[:size]))

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor")

    def close(self) -> None:
        pass


def torn(position: int, data: bytes, chance: random.Random) -> tuple[int, bytes]:
    """Its first sectors, or all but the first: a disk may write them in any order."""
    cut = chance.randrange(0, len(data) + 1, SECTOR)
    return (position, data[:cut]) if chance.random() < 0.75 else (position + cut, data[cut:])


def _put(image: bytearray, position: int, data: bytes) -> None:
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(data)] = data
