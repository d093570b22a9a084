"""Memory by the page: in large pages where the system has them, and as direct I/O takes it.

Copying to or from cold memory in large pages takes half the time: the rest went into finding small ones. Writing past the
page cache costs one copy into an `AlignedBuffer`, and half the CPU of a copy into the page cache: no pages to find, no
read-back to make room for. Large pieces are copied without holding the interpreter.
"""

import contextlib
import mmap
from typing import Final, TypeVar

import numpy as np

Buffer = bytes | bytearray | memoryview
_Pages = TypeVar("_Pages", bound=mmap.mmap)

BLOCK_SIZE: Final = 4096
_LARGE_PIECE: Final = 16 * 1024
"""From here on numpy's copy, which lets other threads run, is worth its call."""


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
