"""Objects as files of a directory, durable when a call returns.

A file is written under a name that no listing shows, flushed, and then given its real name: by `link` where it
must not exist yet (which fails if it does), by `rename` otherwise. The directory is flushed after that, and so
are directories made on the way; without it a power cut can take back the name of a file whose bytes are safe.
Calls block, so they run on a small pool of threads of their own.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from headrace.aligned import BLOCK_SIZE, AlignedBuffer, ReusedPages
from headrace.blob.store import Buffer, ObjectInfo
from headrace.chance import SYSTEM_CHANCE, new_uuid
from headrace.compiled import compiled
from headrace.errors import AlreadyExists, Invalid, ObjectNotFound, StorageFailed, StoreUnavailable
from headrace.file_range import OpenFile

_DRAFT_PREFIX: Final = ".draft-"
_THREADS: Final = 4
"""Enough to keep a disk busy; more would only take cores from the broker."""
_STAGING_SIZE: Final = 2 * 1024 * 1024
"""One large page: in small ones the system spends as long on finding them as on all the rest of a write. In larger pieces
the WAL's small writes would wait behind ours."""
_DIRECT_READ_SIZE: Final = 1024 * 1024
"""Reads from here on go past the page cache. Smaller ones are not worth pages of their own."""
_SPARE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Memory of direct reads that is kept although nobody holds what was read: as much as the read cache holds by default, so that a
topic that is deleted does not take it along."""
_of_thread: Final = threading.local()
_T = TypeVar("_T")


class LocalBlobStore:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="blob-local")
        self._draft_prefix = f"{_DRAFT_PREFIX}{new_uuid(SYSTEM_CHANCE).hex}-"
        self._draft_numbers = itertools.count()
        self._pages = ReusedPages(_SPARE_BYTES_MAX)

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._run(lambda: self._write(key, chunks, os.replace))

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._run(lambda: self._write(key, chunks, _link))

    async def get(self, key: str) -> Buffer:
        return await self._run(lambda: self._path(key).read_bytes())

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        return await self._run(lambda: self._read(key, position, length))

    def open_file(self, key: str) -> OpenFile:
        """The object as a file, to be read without this store. Blocks for as long as opening a file does."""
        try:
            return OpenFile(self._path(key))
        except OSError as error:
            raise _translated(error) from error

    async def head(self, key: str) -> ObjectInfo:
        return await self._run(lambda: _info(key, self._path(key).stat()))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        assert prefix == "" or prefix.endswith("/")
        for info in await self._run(lambda: list(self._walk(prefix, after))):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._run(lambda: self._remove(keys))

    async def close(self) -> None:
        self._threads.shutdown(wait=True)

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise _translated(error) from error

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts):
            raise Invalid(f"not a key: {key!r}")
        return self._root.joinpath(*parts)

    def _write(self, key: str, chunks: Sequence[Buffer], publish: Callable[[Path, Path], None]) -> None:
        path = self._path(key)
        draft = path.parent / f"{self._draft_prefix}{next(self._draft_numbers)}"
        try:
            try:
                _write_durably(draft, chunks)
            except FileNotFoundError:
                make_directory(path.parent)
                _write_durably(draft, chunks)
            publish(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        flush_directory(path.parent)

    def _read(self, key: str, position: int, length: int) -> Buffer:
        path = self._path(key)
        data: Buffer | None = None
        if length >= _DIRECT_READ_SIZE:
            data = _read_directly(path, position, length, self._pages)
        if data is None:
            with _opened(path) as descriptor:
                data = os.pread(descriptor, length, position)
        if len(data) != length:
            raise StoreUnavailable(f"{key}: got {len(data)} of {length} bytes at {position}")
        return data

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        # Sorted per directory with "/" appended to directories, which is the order of the whole keys.
        try:
            entries = list(os.scandir(self._root / prefix))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in sorted((f"{e.name}/" if e.is_dir() else e.name, e) for e in entries):
            key = prefix + name
            if name.startswith("."):
                continue
            if entry.is_dir():
                if key > after or after.startswith(key):
                    yield from self._walk(key, after)
            elif key > after:
                try:
                    yield _info(key, entry.stat())
                except FileNotFoundError:
                    continue

    def _remove(self, keys: Sequence[str]) -> None:
        parents = set()
        for key in keys:
            path = self._path(key)
            path.unlink(missing_ok=True)
            parents.add(path.parent)
        for parent in parents:
            if parent.exists():
                flush_directory(parent)


def _read_directly(path: Path, position: int, length: int, pages: ReusedPages) -> Buffer | None:
    """What there is of `length` bytes at `position`; None where the filesystem cannot.

    The read cache keeps what is read. A second copy in the page cache takes half as much CPU again, and memory from others.
    """
    start = position & ~(BLOCK_SIZE - 1)
    try:
        with _opened(path, os.O_DIRECT) as descriptor:
            memory = pages.take(position + length - start)
            wanted = -(-(position + length - start) // BLOCK_SIZE) * BLOCK_SIZE
            end = start + os.preadv(descriptor, [memory[:wanted]], start)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None
    return memory.toreadonly()[position - start : min(position + length, end) - start]


@contextlib.contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _link(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        raise AlreadyExists(path.name) from None
    os.unlink(draft)


def _write_durably(path: Path, chunks: Sequence[Buffer]) -> None:
    """A new file with `chunks` in it, on disk when this returns.

    Past the page cache where the filesystem can: an object is written once and read by others, if at all, so keeping it
    in memory would only push out what is read.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)
        descriptor = os.open(path, flags, 0o644)
    try:
        size = _write_through(descriptor, chunks, _staging())
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_through(descriptor: int, chunks: Sequence[Buffer], staging: AlignedBuffer) -> int:
    """All of `chunks`, in writes as large as `staging`; gives their size.

    Direct I/O takes whole blocks only: the last one is padded, and the padding is to be cut off.
    """
    if _kernel is None:
        return _write_pieces(descriptor, chunks, staging)
    return int(_kernel.write_through(descriptor, chunks, staging.view, BLOCK_SIZE))


def _write_pieces(descriptor: int, chunks: Sequence[Buffer], staging: AlignedBuffer) -> int:
    filled = 0
    for chunk in chunks:
        pending = memoryview(chunk)
        while len(pending):
            part = pending[: len(staging) - filled]
            staging.put(filled, part)
            filled += len(part)
            pending = pending[len(part) :]
            if filled == len(staging):
                _write_all(descriptor, staging.view)
                filled = 0
    padded = (filled + BLOCK_SIZE - 1) & ~(BLOCK_SIZE - 1)
    _write_all(descriptor, staging.view[:padded])
    return sum(map(len, chunks))


def _staging() -> AlignedBuffer:
    """This thread's own, made once: the first touch of fresh memory costs more than the write itself."""
    found: AlignedBuffer | None = getattr(_of_thread, "staging", None)
    if found is None:
        found = _of_thread.staging = AlignedBuffer(_STAGING_SIZE)
    return found


def _write_all(descriptor: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(descriptor, data) :]


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, so that a power cut does not take them away again."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    with _opened(path, os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key=key, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _translated(error: OSError) -> Exception:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return ObjectNotFound(str(error.filename))
        case errno.ENOSPC | errno.EDQUOT:
            # As a bucket that is over its quota: records stay in the WAL, and somebody may make room.
            return StoreUnavailable(f"the local object store is full: {error}")
        case errno.EMFILE | errno.ENFILE | errno.EINTR | errno.EAGAIN:
            return StoreUnavailable(str(error))
        case _:
            return StorageFailed(f"local object store: {error}")


_kernel: Final = compiled("headrace.blob._through")
