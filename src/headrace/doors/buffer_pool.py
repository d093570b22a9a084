"""Receive buffers that all connections of a door share: a few sizes, used again, within a bound."""

import mmap
from typing import Final

SMALL_BUFFER: Final = 64 * 1024
_LARGE_CLASSES: Final = tuple((kibibytes * 1024) + SMALL_BUFFER for kibibytes in (256, 512, 1024, 2048, 4096))
"""A little more than a power of two: the frame around a one-megabyte batch is larger than the batch."""
_POOLED_BYTES_MAX: Final = 32 * 1024 * 1024


Memory = bytearray | mmap.mmap


class BufferPool:
    """Receive buffers shared by all connections of a door."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {size: [] for size in (SMALL_BUFFER, *_LARGE_CLASSES)}

    def take(self, size: int) -> Memory:
        for class_size, free in self._free.items():
            if class_size >= size:
                return free.pop() if free else bytearray(class_size)
        # The system clears these pages one by one as they are filled. To clear all of them here stops everybody, for a tenth of
        # a second where a frame of a hundred megabytes was announced.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, buffer: Memory) -> None:
        free = self._free.get(len(buffer))
        if free is not None and isinstance(buffer, bytearray) and (len(free) + 1) * len(buffer) <= _POOLED_BYTES_MAX:
            free.append(buffer)
