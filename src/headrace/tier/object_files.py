"""Objects that are files of this machine: opened once, verified in place, and sent from where they lie.

Reading a file to verify it brings it into the system's memory, from where a socket gets it without another copy. Only a
bounded number is open at once; a file that somebody still sends from stays open until that is done.
"""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace.aligned import AlignedBuffer
from headrace.errors import StoreUnavailable
from headrace.file_range import OpenFile
from headrace.tier.format.object import Run, check_run

_OPEN_MAX: Final = 64
_THREADS: Final = 2
"""Checking keeps a core busy; more would take them from the broker and its clients."""
_SCRATCH_STEP: Final = 2 * 1024 * 1024
_of_thread: Final = threading.local()


class ObjectFiles:
    def __init__(self, open_file: Callable[[str], OpenFile]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tier-verify")

    async def open(self, key: str) -> OpenFile:
        """Raises what the store does for an object that is not there."""
        found = self._open.get(key)
        if found is None:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._open_file, key)
            found = self._open.setdefault(key, found)
            if len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(key)
        return found

    async def verify(self, file: OpenFile, runs: Sequence[Run], note: Callable[[int, memoryview], None]) -> None:
        """Read and check the runs; `note` is given each one's number and bytes, from a thread. `Corrupted` at the first bad one."""

        def read_all() -> None:
            for number, run in enumerate(runs):
                note(number, _checked(file, run))

        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, read_all)
        except OSError as error:
            raise StoreUnavailable(f"local object store: {error}") from error

    def forget(self, key: str) -> None:
        self._open.pop(key, None)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _checked(file: OpenFile, run: Run) -> memoryview:
    """The run's bytes, in memory that the thread uses again for the next one."""
    scratch = _scratch(run.length)
    count = os.preadv(file.descriptor, [scratch[: run.length]], run.position)
    check_run(run, scratch[:count])
    return scratch[:count]


def _scratch(size: int) -> memoryview:
    found: AlignedBuffer | None = getattr(_of_thread, "scratch", None)
    if found is None or len(found) < size:
        found = _of_thread.scratch = AlignedBuffer(-(-size // _SCRATCH_STEP) * _SCRATCH_STEP)
    return found.view
