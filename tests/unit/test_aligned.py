"""Memory that is filled again: never while somebody still looks at it."""

import os

import numpy as np

from headrace.aligned import ReusedPages

MEBIBYTE = 1024 * 1024


def _address_of(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def test_pages_are_filled_again_once_nobody_points_into_them() -> None:
    pages = ReusedPages(spare_bytes_max=16 * MEBIBYTE)
    first = pages.take(3 * MEBIBYTE + 1)
    address = _address_of(first)
    del first
    assert _address_of(pages.take(3 * MEBIBYTE)) == address


def test_pages_that_a_slice_points_into_are_left_alone() -> None:
    pages = ReusedPages(spare_bytes_max=16 * MEBIBYTE)
    first = pages.take(MEBIBYTE)
    first[:4] = b"kept"
    kept = first.toreadonly()[:4]
    del first
    for _ in range(4):
        pages.take(MEBIBYTE)[:] = os.urandom(MEBIBYTE)
    assert bytes(kept) == b"kept"


def test_much_larger_pages_are_not_spent_on_little() -> None:
    pages = ReusedPages(spare_bytes_max=64 * MEBIBYTE)
    large = pages.take(32 * MEBIBYTE)
    del large
    assert len(pages.take(MEBIBYTE)) == MEBIBYTE
    assert len(pages.take(32 * MEBIBYTE)) == 32 * MEBIBYTE


def test_what_nobody_uses_is_kept_only_up_to_its_bound() -> None:
    pages = ReusedPages(spare_bytes_max=2 * MEBIBYTE)
    held = [pages.take(MEBIBYTE) for _ in range(8)]
    assert pages.held_bytes == 8 * MEBIBYTE
    del held
    assert len(pages.take(MEBIBYTE)) == MEBIBYTE
    assert pages.held_bytes == 3 * MEBIBYTE
