"""Memory for the hot tail: chunks from a process-wide free list under one byte budget.

A chunk is contiguous, belongs to one partition at a time, and is filled once from front to back. It returns to the
free list only when nothing points into it any more: responses that still wait in a socket and groups that still
wait for the disk hold memoryviews, and Python's own buffer accounting tells whether any is left.
"""

from collections import deque
from typing import Final

CHUNK_SIZES: Final = (4 * 1024, 64 * 1024, 1024 * 1024)
"""A quiet partition holds 4 KiB; a busy one moves up a size with each chunk it fills."""


class Chunk:
    """One stretch of tail memory. `used` grows; bytes below it never change while the chunk is in a tail."""

    __slots__ = ("memory", "position", "size", "used", "view")

    def __init__(self, memory: bytearray) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.size = len(memory)
        self.used = 0
        self.position = 0
        """Where this chunk begins in its partition's byte sequence."""

    def is_referenced_elsewhere(self) -> bool:
        """Whether any memoryview but our own is alive. Leaves the chunk without a view when none is."""
        self.view.release()
        try:
            # A bytearray refuses to change size while a buffer of it is exported: that is the whole test.
            self.memory.append(self.memory.pop())
        except BufferError:
            self.view = memoryview(self.memory)
            return True
        return False


class ArenaPool:
    """Hands out chunks and takes them back; knows how many bytes are out.

    What came back is kept for reuse as long as all of it stays within the budget: the first touch of new memory costs seven
    times what filling it again does.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._free_bytes = 0
        self._free: dict[int, deque[bytearray]] = {size: deque() for size in CHUNK_SIZES}
        self._lingering: deque[Chunk] = deque()

    def take(self, size_needed: int, previous_size: int) -> Chunk:
        """A chunk with room for `size_needed`, one class above the partition's last one."""
        size = _chunk_size(size_needed, previous_size)
        free = self._free.get(size)
        if not free and self._lingering:
            self._reclaim()
        if free:
            memory = free.pop()
            self._free_bytes -= size
        else:
            memory = bytearray(size)
        self.used_bytes += size
        self._let_go()
        return Chunk(memory)

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
            if free is not None:
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


def _chunk_size(size_needed: int, previous_size: int) -> int:
    for size in CHUNK_SIZES:
        if size >= size_needed and (size > previous_size or size == CHUNK_SIZES[-1]):
            return size
    return size_needed
