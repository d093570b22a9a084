"""Blocks of a bucket's objects, kept on the local disk: the second reading of a backlog does not need the bucket.

One sparse file for each object has its blocks at the places they have in the object, so readers are handed ranges of it as of
a file of the local store. Nothing here is relied on: what is read from it is verified first (`object_files`), a block that could
not be written is fetched again, and the directory is emptied at every start. The objects read longest ago go first when the
budget is full.
"""

import asyncio
import os
import shutil
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from headrace.errors import ObjectNotFound
from headrace.file_range import OpenFile
from headrace.telemetry.logging import get_logger
from headrace.tier.metrics import TierMetrics

_PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Waiting to be written. A disk that is slower than the bucket must not make memory grow: what comes then is not kept."""
_FREE_BYTES_MIN: Final = 2 * 1024**3
"""Of the disk, left to those who need it."""

log = get_logger(__name__)


class DiskCache:
    def __init__(self, directory: Path, *, bytes_max: int, metrics: TierMetrics) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._kept: OrderedDict[str, _KeptObject] = OrderedDict()
        self._files_made = 0
        self._pending_bytes = 0
        self._is_failing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk-cache")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o700)

    def has(self, key: str, position: int) -> bool:
        kept = self._kept.get(key)
        return kept is not None and position in kept.blocks

    def open_file(self, key: str) -> OpenFile:
        """Blocks for as long as opening a file does."""
        kept = self._kept.get(key)
        if kept is None:
            raise ObjectNotFound(key)
        try:
            return OpenFile(kept.path)
        except OSError as error:
            raise ObjectNotFound(f"{key}: {error}") from error

    def note_read(self, key: str) -> None:
        if key in self._kept:
            self._kept.move_to_end(key)

    def keep(self, key: str, position: int, data: memoryview) -> None:
        """Write it beside whatever else goes on; it can be read from here once that is done."""
        if self._pending_bytes + len(data) > _PENDING_BYTES_MAX or self.has(key, position):
            return
        kept = self._kept.get(key)
        if kept is None:
            self._files_made += 1
            kept = self._kept[key] = _KeptObject(self._directory / str(self._files_made))
        self._pending_bytes += len(data)
        writing = asyncio.get_running_loop().run_in_executor(self._thread, _write, kept.path, position, data)
        writing.add_done_callback(lambda done: self._written(kept, position, len(data), done))

    def _written(self, kept: "_KeptObject", position: int, size: int, done: "asyncio.Future[None]") -> None:
        self._pending_bytes -= size
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            if not self._is_failing:
                log.warning("blocks are not kept on disk", directory=str(self._directory), reason=str(error))
            self._is_failing = True
            return
        self._is_failing = False
        kept.blocks[position] = size
        if kept.is_forgotten:
            kept.remove()
            return
        self._metrics.tier_disk_cache_bytes += size
        while self._metrics.tier_disk_cache_bytes > self._bytes_max:
            self.forget(next(iter(self._kept)))

    def forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._metrics.tier_disk_cache_bytes -= sum(kept.blocks.values())
            kept.remove()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(self._directory, ignore_errors=True)


class _KeptObject:
    __slots__ = ("blocks", "is_forgotten", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks: dict[int, int] = {}
        """Sizes, by position in the object."""
        self.is_forgotten = False

    def remove(self) -> None:
        """A write that is under way may make the file once more; whoever waits for it calls this again."""
        self.is_forgotten = True
        self.path.unlink(missing_ok=True)


def _write(path: Path, position: int, data: memoryview) -> None:
    if shutil.disk_usage(path.parent).free < _FREE_BYTES_MIN:
        raise OSError(f"less than {_FREE_BYTES_MIN >> 30} GiB are left on the disk")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while len(data):
            written = os.pwrite(descriptor, data, position)
            position, data = position + written, data[written:]
    finally:
        os.close(descriptor)
