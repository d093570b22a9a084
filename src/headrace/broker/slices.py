"""Long walks over many topics, groups or partitions that leave the event loop to others.

By the clock, not by a count: what one step costs depends on what it looks at, and whoever produces meanwhile waits for the
longest stretch, not for the average one.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

SLICE_NS: Final = 250_000
"""An eighth of the two milliseconds that an administrator may hold up a producer: what a walk does between two looks at the
clock, and what others do in the same turn, comes on top."""

CHUNK: Final = 32
"""Steps between two looks at the clock, where they are short."""

T = TypeVar("T")


class _Queue:
    """Walks that have given way. One goes on in each turn of the loop: ten people who look at once hold a producer up for no longer
    than one of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._is_taken = False
        """Whether the next turn is somebody's."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            try:
                await asyncio.sleep(0)
            finally:
                self._pass_on()
            return
        mine: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(mine)
        try:
            await mine
        finally:
            # Given up while it waited, it has nothing to pass on.
            if not mine.cancelled():
                self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._is_taken = False


_known: list[_Queue] = []


def _queue() -> _Queue:
    """That of the running loop; a process has one at a time."""
    loop = asyncio.get_running_loop()
    if not _known or _known[0].loop is not loop:
        _known[:] = [_Queue(loop)]
    return _known[0]


class Turns:
    """The budget of one task for one turn of the loop. Walks inside each other, and one after another, share it: with a budget
    each, many short walks in a row would never give up the loop."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._ends_ns = now_ns() + SLICE_NS
        self._queue: _Queue | None = None

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items one by one; others have a turn whenever the budget is used up.

        A mutable collection must be copied before it is walked: others change it in their turns.
        """
        for item in items:
            yield item
            if self._now_ns() >= self._ends_ns:
                await self._give_way()

    async def chunks(self, items: Iterable[T]) -> AsyncIterator[list[T]]:
        """The same for steps of a few microseconds, some at a time: an async step for each would cost more than the step itself."""
        iterator = iter(items)
        while chunk := list(islice(iterator, CHUNK)):
            yield chunk
            if self._now_ns() >= self._ends_ns:
                await self._give_way()

    async def _give_way(self) -> None:
        if self._queue is None:
            self._queue = _queue()
        await self._queue.turn()
        self._ends_ns = self._now_ns() + SLICE_NS


def gently(items: Iterable[T]) -> AsyncIterator[T]:
    """`Turns.over` for a task that has only one walk."""
    return Turns().over(items)
