"""Looking into batches beside the loop: one at a time, whoever asks, and what was seen is kept.

What is inside a compressed batch is its producer's choice: a kilobyte may be two million records. A thread of its own takes
as long as it takes; the decompressors and the kernel that walks over records let go of the interpreter meanwhile. Whoever
asks for much waits for himself, and one batch at a time is in memory in the clear. A batch never changes, so the answer to a
question about it stays right: whoever asks again is told at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from headrace.errors import HeadraceError
from headrace.records.batch import Buffer, read_header

ANSWERS_MAX: Final = 8192
"""Kept of all batches together, some 300 bytes each."""

_T = TypeVar("_T")


class Verdict(NamedTuple):
    """What was found when a client's batch was looked into."""

    error: HeadraceError | None
    """What is wrong with its records."""


class Inspection:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inspection")
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()  # Any: what each question is answered with
        """Least recently asked first."""
        self.looks_total = 0
        """Batches that the thread was given."""

    async def of(self, batch: Buffer, look: Callable[[Buffer], _T], *, question: Hashable = None) -> _T:
        """What `look` sees in `batch`; at once where nothing has to be decompressed.

        With a `question`, which names the batch and what is asked of it, the answer is kept.
        """
        if not read_header(batch).codec:
            return look(batch)
        if question is None:
            return await self.beside(batch, look)
        if question in self._answers:
            self._answers.move_to_end(question)
            known: _T = self._answers[question]
            return known
        answer = await self.beside(batch, look)
        self._answers[question] = answer
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        return answer

    async def beside(self, batch: Buffer, look: Callable[[Buffer], _T]) -> _T:
        """What `look` sees in `batch`, by the thread in any case."""
        self.looks_total += 1
        # A copy: memory that is lent, or filled again, is not for a thread that comes when it comes.
        copied = bytes(batch)
        return await asyncio.get_running_loop().run_in_executor(self._thread, look, copied)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
