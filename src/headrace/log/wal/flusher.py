"""Who makes a group durable while the event loop goes on: one port, two threads behind it.

`NativeFlusher` is a thread that never takes the interpreter (`_flusher.c`): a flush does not compete with the loop for it,
and a loop that is busy does not hold the disk up. `ThreadFlusher` does the same in Python where the extension was not
built. One suite of tests covers both.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headrace.compiled import compiled
from headrace.errors import HeadraceError, StorageFailed
from headrace.log.wal.file import RingFile, storage_error

Done = Callable[[HeadraceError | None], None]
"""Called on the loop when a write has ended, with what went wrong."""


class Flusher(Protocol):
    """Writes one group at a time. All methods belong to the event loop."""

    def write(self, lsn: int, image: memoryview) -> None:
        """Put `image`, whole blocks at an address of whole blocks, at `lsn`; done when the disk has it, or has said no.

        It must not change until then. The one before must be done.
        """
        ...

    def close(self) -> None:
        """Wait for a write under way and end the thread. Nobody is told any more."""
        ...


class FlusherKind(Protocol):
    def __call__(self, file: RingFile, done: Done) -> Flusher: ...


def fastest_flusher() -> FlusherKind:
    """The native one where it was built, its twin elsewhere."""
    return NativeFlusher if compiled("headrace.log.wal._flusher") is not None else ThreadFlusher


class NativeFlusher:
    """Hands groups to the native thread, and hears from it through a descriptor that the loop watches."""

    def __init__(self, file: RingFile, done: Done) -> None:
        from headrace.log.wal._flusher import Flusher as Thread

        self._file = file
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._thread = Thread(file.write_fd, is_direct=file.is_direct)
        self._loop.add_reader(self._thread.fileno(), self._ended)

    def write(self, lsn: int, image: memoryview) -> None:
        place = self._file.place(lsn)
        if place + len(image) <= self._file.zeroed_end:
            self._thread.write(image, place)
        else:
            # Seldom: zeroing keeps well ahead of the head.
            zeroing = self._loop.run_in_executor(None, self._file.zero_until, place + len(image))
            zeroing.add_done_callback(partial(self._zeroed, image, place))

    def _zeroed(self, image: memoryview, place: int, zeroing: "asyncio.Future[None]") -> None:
        if self._is_closed:
            return
        if (error := zeroing.exception()) is None:
            self._thread.write(image, place)
        else:
            self._done(_failure(error))

    def _ended(self) -> None:
        code = self._thread.finish()
        self._done(_failure(OSError(code, os.strerror(code))) if code else None)

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._thread.fileno())
        self._thread.close()


class ThreadFlusher:
    """A Python thread that does nothing but the write and the sync: what it does in Python the loop has to wait for."""

    def __init__(self, file: RingFile, done: Done) -> None:
        self._file = file
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._jobs: queue.SimpleQueue[tuple[int, memoryview] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._flush_forever, name="wal-flusher", daemon=True)
        self._thread.start()

    def write(self, lsn: int, image: memoryview) -> None:
        self._jobs.put((lsn, image))

    def _flush_forever(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: HeadraceError | None = None
            try:
                self._file.write(*job)
            except BaseException as failure:
                error = _failure(failure)
            self._loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: HeadraceError | None) -> None:
        if not self._is_closed:
            self._done(error)

    def close(self) -> None:
        self._is_closed = True
        self._jobs.put(None)
        self._thread.join()


def _failure(error: BaseException) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError):
        return storage_error("write the WAL", error)
    return StorageFailed(f"flushing the WAL failed: {error!r}")
