"""Memory by the page: in large pages where the system has them, and as direct I/O takes it.

Copying to or from cold memory in large pages takes half the time: the rest went into finding small ones. Writing past the
page cache costs one copy into an `AlignedBuffer`, and half the CPU of a copy into the page cache: no pages to find, no
read-back to make room for. Large pieces are copied without holding the interpreter.
"""

import contextlib
import mmap
import threading
from collections import deque
from typing import Final, TypeVar

import numpy as np

Buffer = bytes | bytearray | memoryview
_Pages = TypeVar("_Pages", bound=mmap.mmap)

BLOCK_SIZE: Final = 4096
_LARGE_PIECE: Final = 16 * 1024
"""From here on numpy's copy, which lets other threads run, is worth its call."""

_REUSED_STEP: Final = 1024 * 1024
"""Sizes are rounded up to it, so that reads of nearly the same size can use each other's memory."""
_REUSED_SLACK: Final = 2 * _REUSED_STEP
"""How much larger than asked for memory may be that is used again."""


class LendablePages(mmap.mmap):
    """Pages that an answer may hand to a socket as they are, without a copy.

    From then on the socket, and on the same machine whoever reads from it, refer to them for nobody knows how long. So what has
    been lent is never written again: look at `is_lent` before filling pages anew, and take others instead. Giving them back
    to the system is safe at any time.
    """

    is_lent = False
    copied_bytes = 0
    """Sent in large pieces before that, by copying."""


def fresh_pages(size: int) -> mmap.mmap:
    """Whole pages for `size` bytes: zeros, nobody else's, large pages where there is room for them."""
    return _fresh(size, mmap.mmap)


def small_pages(size: int) -> mmap.mmap:
    """The same in the system's usual pages, for what is filled once: their first touch is cheaper.

    Those were in use a moment ago, while large ones come from memory that the host of a virtual machine has taken back.
    """
    return _mapped(size, mmap.mmap)


class ReusedPages:
    """Memory that is handed out to be filled, and filled again once nobody points into it any more.

    Fresh pages cost more than what is read into them: the system clears each before it gives it away. Safe to use from
    several threads.
    """

    def __init__(self, spare_bytes_max: int) -> None:
        """`spare_bytes_max` is what is kept while nobody points into it."""
        self._spare_bytes_max = spare_bytes_max
        self._given: deque[mmap.mmap] = deque()
        """Longest ago first: what was given first is what is most likely free again."""
        self._lock = threading.Lock()

    def take(self, size: int) -> memoryview:
        """At least `size` bytes from the start of a page. They are the caller's as long as any view of them lives."""
        with self._lock:
            memory = self._reuse(size)
            if memory is None:
                memory = small_pages(-(-size // _REUSED_STEP) * _REUSED_STEP)
            self._given.append(memory)
            return memoryview(memory)

    @property
    def held_bytes(self) -> int:
        """All of it, whether anybody points into it or not."""
        return sum(map(len, self._given))

    def _reuse(self, size: int) -> mmap.mmap | None:
        """The first that is free and fits; of the others that are free only so many stay."""
        found: mmap.mmap | None = None
        spare_bytes = 0
        for _ in range(len(self._given)):
            memory = self._given.popleft()
            if not is_exported(memory):
                if found is None and size <= len(memory) <= size + _REUSED_SLACK:
                    found = memory
                    continue
                spare_bytes += len(memory)
                if spare_bytes > self._spare_bytes_max:
                    continue
            self._given.append(memory)
        return found


def is_exported(memory: bytearray | mmap.mmap) -> bool:
    """Whether any view of it is alive: memory refuses to change its size while one is, and that is the whole test."""
    try:
        if isinstance(memory, bytearray):
            memory.append(memory.pop())
        else:
            memory.resize(len(memory))
    except BufferError:
        return True
    return False


def lendable_pages(size: int) -> LendablePages:
    return _fresh(size, LendablePages)


def _mapped(size: int, kind: type[_Pages]) -> _Pages:
    return kind(-1, (size + BLOCK_SIZE - 1) & ~(BLOCK_SIZE - 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _fresh(size: int, kind: type[_Pages]) -> _Pages:
    memory = _mapped(size, kind)
    with contextlib.suppress(OSError, AttributeError):  # A kernel built without them, or another system.
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def touch(memory: mmap.mmap) -> None:
    """Have the system find all of the pages now: the first to touch one waits for it."""
    np.frombuffer(memory, dtype=np.uint8)[::BLOCK_SIZE] = 0


class AlignedBuffer:
    """A fixed stretch of page-aligned memory, used by one thread at a time."""

    def __init__(self, size: int) -> None:
        self._memory = fresh_pages(size)
        self._array = np.frombuffer(self._memory, dtype=np.uint8)
        self.view = memoryview(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def put(self, position: int, piece: Buffer) -> None:
        end = position + len(piece)
        if len(piece) < _LARGE_PIECE:
            self.view[position:end] = piece
        else:
            np.copyto(self._array[position:end], np.frombuffer(piece, dtype=np.uint8))
