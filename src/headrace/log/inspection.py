"""Looking into batches beside the loop: one at a time, whoever asks.

What is inside a compressed batch is its producer's choice: a kilobyte may be two million records. A thread of its own takes
as long as it takes; the decompressors and the kernel that walks over records let go of the interpreter meanwhile. Whoever
asks for much waits for himself, and one batch at a time is in memory in the clear.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.records.batch import Buffer, read_header

_T = TypeVar("_T")


class Inspection:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inspection")

    async def of(self, batch: Buffer, look: Callable[[Buffer], _T]) -> _T:
        """What `look` sees in `batch`; at once where nothing has to be decompressed."""
        if not read_header(batch).codec:
            return look(batch)
        # A copy: memory that is lent, or filled again, is not for a thread that comes when it comes.
        copied = bytes(batch)
        return await asyncio.get_running_loop().run_in_executor(self._thread, look, copied)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
