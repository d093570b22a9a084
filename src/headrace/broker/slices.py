"""Long walks over many topics, groups or partitions that leave the event loop to others.

By the clock, not by a count: what one step costs depends on what it looks at, and whoever produces meanwhile waits for the
longest stretch, not for the average one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

SLICE_NS: Final = 250_000
"""An eighth of the two milliseconds that an administrator may hold up a producer: what a walk does between two looks at the
clock, and what others do in the same turn, comes on top."""

CHUNK: Final = 32
"""Steps between two looks at the clock, where they are short."""

T = TypeVar("T")


class Turns:
    """The budget of one task for one turn of the loop. Walks inside each other, and one after another, share it: with a budget
    each, many short walks in a row would never give up the loop."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._ends_ns = now_ns() + SLICE_NS

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items one by one; others have a turn whenever the budget is used up.

        A mutable collection must be copied before it is walked: others change it in their turns.
        """
        for item in items:
            yield item
            if self._now_ns() >= self._ends_ns:
                await asyncio.sleep(0)
                self._ends_ns = self._now_ns() + SLICE_NS

    async def chunks(self, items: Iterable[T]) -> AsyncIterator[list[T]]:
        """The same for steps of a few microseconds, some at a time: an async step for each would cost more than the step itself."""
        iterator = iter(items)
        while chunk := list(islice(iterator, CHUNK)):
            yield chunk
            if self._now_ns() >= self._ends_ns:
                await asyncio.sleep(0)
                self._ends_ns = self._now_ns() + SLICE_NS


def gently(items: Iterable[T]) -> AsyncIterator[T]:
    """`Turns.over` for a task that has only one walk."""
    return Turns().over(items)
