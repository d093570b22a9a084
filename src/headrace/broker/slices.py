"""Long walks over many topics, groups or partitions that leave the event loop to others.

By the clock, not by a count: what one step costs depends on what it looks at, and whoever produces meanwhile waits for the
longest stretch, not for the average one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

SLICE_NS: Final = 500_000
"""Well below the two milliseconds that an administrator may hold up a producer."""

T = TypeVar("T")


async def gently(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one; others have a turn whenever half a millisecond has passed.

    A mutable collection must be copied before it is walked: others change it in their turns.
    """
    ends_ns = time.monotonic_ns() + SLICE_NS
    for item in items:
        yield item
        if time.monotonic_ns() >= ends_ns:
            await asyncio.sleep(0)
            ends_ns = time.monotonic_ns() + SLICE_NS
