"""Memory for frames, the large ones above all."""

import os
from pathlib import Path

from headrace.doors.buffer_pool import SMALL_BUFFER, BufferPool

MIB = 1024 * 1024


def test_buffers_are_used_again() -> None:
    pool = BufferPool()
    first = pool.take(SMALL_BUFFER + 1)
    pool.give_back(first)
    assert pool.take(SMALL_BUFFER + 1) is first


def test_memory_for_a_large_frame_is_taken_as_it_is_filled() -> None:
    """To clear it all at once would stop everybody else meanwhile."""
    pool = BufferPool()
    before = resident_bytes()
    buffer = pool.take(64 * MIB)
    assert resident_bytes() - before < 8 * MIB
    with memoryview(buffer) as view:
        view[: 16 * MIB] = bytes(16 * MIB)
    assert resident_bytes() - before >= 16 * MIB
    pool.give_back(buffer)
    assert pool.take(64 * MIB) is not buffer


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
