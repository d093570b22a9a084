"""Long walks over many partitions, a slice at a time: whoever else wants the event loop gets it in between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

SLICE: Final = 32
"""Steps of a few microseconds each: together a quarter of a millisecond."""

T = TypeVar("T")


async def in_slices(items: Sequence[T]) -> AsyncIterator[T]:
    for number, item in enumerate(items, 1):
        yield item
        if not number % SLICE:
            await asyncio.sleep(0)
