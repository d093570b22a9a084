"""Memory for the hot tail: chunks from a process-wide free list under one byte budget.

A chunk is contiguous, belongs to one partition at a time, and is filled once from front to back. It returns to the
free list only when nothing points into it any more: responses that still wait in a transport and uploads under way hold
memoryviews, and Python's own buffer accounting tells whether any is left. A chunk whose pages were
lent to a socket goes back to the system instead, which frees them when the last who reads them has.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.aligned import LendablePages, is_exported, lendable_pages, touch

CHUNK_SIZES: Final = (4 * 1024, 64 * 1024, 2 * 1024 * 1024)
"""A quiet partition holds 4 KiB; the largest is one large page."""
MADE_AHEAD: Final = 3
"""Large chunks at once: more would take the other core from clients for milliseconds."""
_BUSY_S: Final = 0.2
"""A partition that has filled a chunk in less gets the next larger one: it will be busy with that for some seconds at most."""
_QUIET_S: Final = 10.0
"""One that has needed longer gets a smaller one: what is not filled is kept from others."""


class Chunk:
    """One stretch of tail memory. `used` grows; bytes below it never change while the chunk is in a tail."""

    __slots__ = ("memory", "position", "size", "taken_at", "used", "view")

    def __init__(self, memory: bytearray | LendablePages, taken_at: float = 0.0) -> None:
        self.memory = memory
        self.taken_at = taken_at
        self.view = memoryview(memory)
        self.size = len(memory)
        self.used = 0
        self.position = 0
        """Where this chunk begins in its partition's byte sequence."""

    def is_referenced_elsewhere(self) -> bool:
        """Whether any memoryview but our own is alive. Leaves the chunk without a view when none is."""
        self.view.release()
        if not is_exported(self.memory):
            return False
        self.view = memoryview(self.memory)
        return True

    @property
    def is_lent(self) -> bool:
        """Whether a socket may still refer to this memory, unseen by Python: it must not be filled again."""
        return isinstance(self.memory, LendablePages) and self.memory.is_lent


class ArenaPool:
    """Hands out chunks and takes them back; knows how many bytes are out.

    What came back is kept for reuse as long as all of it stays within the budget: the first touch of new memory costs seven
    times what filling it again does. While the tail grows, large chunks are made ahead of their use by
    whoever asks `is_short`, so that the event loop seldom waits for their pages.
    """

    def __init__(self, budget_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget_bytes = budget_bytes
        self._clock = clock
        self.used_bytes = 0
        self._free_bytes = 0
        self.is_short = False
        """A large chunk was needed and had to be made on the spot. There will be more: `add` some that are made elsewhere."""
        self._free: dict[int, deque[bytearray | LendablePages]] = {size: deque() for size in CHUNK_SIZES}
        self._lingering: deque[Chunk] = deque()

    def take(self, size_needed: int, previous: Chunk | None) -> Chunk:
        """A chunk with room for `size_needed`, for a partition that has filled `previous`."""
        now = self._clock()
        size = _size_after(previous, now, size_needed)
        free = self._free.get(size)
        if not free and self._lingering:
            self._reclaim()
        if free:
            memory = free.pop()
            self._free_bytes -= size
        else:
            self.is_short = size == CHUNK_SIZES[-1]
            memory = lendable_pages(size) if self.is_short else bytearray(size)
        self.used_bytes += size
        self._let_go()
        return Chunk(memory, now)

    def add(self, made: list[LendablePages]) -> None:
        self.is_short = False
        self._free[CHUNK_SIZES[-1]].extendleft(made)
        self._free_bytes += CHUNK_SIZES[-1] * len(made)
        self._let_go()

    def give_back(self, chunk: Chunk) -> None:
        """The partition needs `chunk` no more; it is reused once nobody else does either."""
        self.used_bytes -= chunk.size
        self._lingering.append(chunk)
        if len(self._lingering) > 8:
            self._reclaim()

    @property
    def lingering_bytes(self) -> int:
        """What slow readers pin: dropped from tails, still referenced by unsent responses."""
        return sum(chunk.size for chunk in self._lingering)

    def _reclaim(self) -> None:
        for _ in range(len(self._lingering)):
            chunk = self._lingering.popleft()
            if chunk.is_referenced_elsewhere():
                self._lingering.append(chunk)
                continue
            free = self._free.get(chunk.size)
            if free is not None and not chunk.is_lent:
                free.append(chunk.memory)
                self._free_bytes += chunk.size
        self._let_go()

    def _let_go(self) -> None:
        """What the budget does not cover goes back to the allocator, large chunks first."""
        for size in reversed(CHUNK_SIZES):
            free = self._free[size]
            while free and self.used_bytes + self._free_bytes > self.budget_bytes:
                free.pop()
                self._free_bytes -= size


def make_chunks() -> list[LendablePages]:
    """Memory for a few large chunks, ready to be filled. Takes milliseconds: not for the event loop."""
    made = [lendable_pages(CHUNK_SIZES[-1]) for _ in range(MADE_AHEAD)]
    for memory in made:
        touch(memory)
    return made


def _size_after(previous: Chunk | None, now: float, size_needed: int) -> int:
    """The size that suits how fast `previous` was filled, or exactly what is needed where none is large enough."""
    number = 0
    if previous is not None:
        seconds = now - previous.taken_at
        number = bisect_left(CHUNK_SIZES, previous.size) + (seconds < _BUSY_S) - (seconds > _QUIET_S)
    for size in CHUNK_SIZES[min(max(number, 0), len(CHUNK_SIZES) - 1) :]:
        if size >= size_needed:
            return size
    return size_needed
