"""A node with one rule broken, or one fault injected: `python -m tests.support.mutants MUTANT up ...`.

A test that proves a promise proves little until a broken promise makes it fail. Each mutant below names the rule it
breaks and who must notice. Only this program knows where the rules live; the node itself has no switch to break them.
"""

import asyncio
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.aligned import fresh_pages
from headrace.cli.main import main as run
from headrace.errors import HeadraceError
from headrace.log import partition_recovery
from headrace.log import recovery as log_recovery
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.wal import recovery
from headrace.log.wal.file import storage_error
from headrace.log.wal.flusher import NativeFlusher, ThreadFlusher
from headrace.log.wal.writer import WalWriter

FAILS_NOW = "no flush succeeds from here on"
AnyFlusher = NativeFlusher | ThreadFlusher
Write = Callable[..., None]


def _replace_write(changed: Write) -> None:
    """`changed` gets what a flusher's `write` gets, and that `write` itself in front, whichever flusher the node has."""
    for kind in (NativeFlusher, ThreadFlusher):
        original = kind.write
        kind.write = lambda self, *group, write=original: changed(write, self, *group)  # type: ignore[method-assign]


def flush_fails(name: str, after: str) -> None:
    """Fault, not mutant: the disk says no after a number of flushes, and the bytes are not there."""
    code = getattr(errno, name)
    left = int(after)

    def failing(write: Write, flusher: AnyFlusher, lsn: int, image: memoryview) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            print(FAILS_NOW, flush=True)
        if left < 0:
            flusher._loop.call_soon(flusher._done, storage_error("write the WAL", OSError(code, os.strerror(code))))
        else:
            write(flusher, lsn, image)

    _replace_write(failing)


def no_flush() -> None:
    """Acknowledge what is only in the page cache. kill -9 does not lose that; the power-cut test must notice."""

    def unsynced(write: Write, flusher: AnyFlusher, lsn: int, image: memoryview) -> None:
        flusher._file._file.write(flusher._file.place(lsn), image)
        flusher._loop.call_soon(flusher._done, None)

    _replace_write(unsynced)


def ack_before_write() -> None:
    """Acknowledge what the next flush will write. The kill test must notice: the process dies owing it."""
    held: list[tuple[int, memoryview]] = []

    def late(write: Write, flusher: AnyFlusher, lsn: int, image: memoryview) -> None:
        own = memoryview(fresh_pages(len(image)))
        own[:] = image
        held.append((lsn, own))
        if len(held) > 1:
            write(flusher, *held.pop(0))
        else:
            flusher._loop.call_soon(flusher._done, None)

    _replace_write(late)


def early_high_watermark() -> None:
    """Readable before durable: a consumer sees what a crash then takes back. The kill test must notice."""
    take = PartitionLog._take

    def slow(write: Write, flusher: AnyFlusher, *group: Any) -> None:  # Any: whatever the method takes
        flusher._loop.call_later(0.03, write, flusher, *group)  # A disk slow enough for a reader to come first.

    def early(self: PartitionLog, *arguments: Any, **named: Any) -> Any:
        appended = take(self, *arguments, **named)
        self._advance(appended.end_offset)
        return appended

    def wait(self: PartitionLog, end_offset: int, waiter: Any) -> bool:
        return self._store.wal.wait(waiter)  # Still acknowledged in time, so that only readers are lied to.

    _replace_write(slow)
    PartitionLog._take = early  # type: ignore[method-assign]
    PartitionLog.wait = wait  # type: ignore[method-assign]


def no_fence() -> None:
    """The owner does not look for the fence after a flush. The fence test must notice."""
    init = WalWriter.__init__

    def blind(self: WalWriter, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self._fence_path = Path("/nonexistent/fence")

    WalWriter.__init__ = blind  # type: ignore[method-assign]


def forgotten_producers() -> None:
    """Producer state does not survive a restart: repeated batches land twice. The kill test must notice."""
    flushed = WalWriter._flushed
    replay = partition_recovery.replay

    def late(self: WalWriter, error: HeadraceError | None) -> None:
        # Time enough for a kill to find batches on the disk that nobody was told of.
        asyncio.get_running_loop().call_later(0.1, flushed, self, error)

    def forgetful(self: PartitionLog, *arguments: Any, **named: Any) -> None:
        replay(self, *arguments, **{**named, "is_in_checkpoint": True})

    WalWriter._flushed = late  # type: ignore[method-assign]
    log_recovery.replay = forgetful  # type: ignore[attr-defined, assignment]
    Producers.restore = lambda self, snapshots: None  # type: ignore[method-assign]


def reused_offsets() -> None:
    """After a restart the last record of each partition is forgotten and its offset given out again."""
    recovered = partition_recovery.recovered

    def short(self: PartitionLog) -> None:
        if self.end_offset > self.log_start:
            self.end_offset -= 1
        recovered(self)

    log_recovery.recovered = short  # type: ignore[attr-defined, assignment]


def unchecked_recovery() -> None:
    """Recovery believes every table, whether the batches read back or not. The flipped-bit test must notice."""
    recovery.is_whole = lambda row: True


def retry_after_failure() -> None:
    """A failed flush is shrugged off and acknowledged. The flush-failure test must notice."""

    def shrug(self: WalWriter, error: HeadraceError | None) -> None:
        flushed(self, None)

    flushed = WalWriter._flushed
    WalWriter._flushed = shrug  # type: ignore[method-assign]
    flush_fails("EIO", "60")


MUTANTS: dict[str, Callable[..., None]] = {
    "flush-fails": flush_fails,
    "no-flush": no_flush,
    "ack-before-write": ack_before_write,
    "early-high-watermark": early_high_watermark,
    "no-fence": no_fence,
    "forgotten-producers": forgotten_producers,
    "reused-offsets": reused_offsets,
    "unchecked-recovery": unchecked_recovery,
    "retry-after-failure": retry_after_failure,
}


def main() -> None:
    name, *parameters = sys.argv[1].split(":")
    MUTANTS[name](*parameters)
    sys.argv[1:2] = []
    run()


if __name__ == "__main__":
    main()
