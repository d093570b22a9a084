"""CRCs of many batches from their own: the same as of all the bytes, as long as those are what their producers sent."""

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.compiled import compiled
from headrace.records import crc as module
from headrace.records.batch import HEADER_SIZE
from headrace.records.crc import crc_of_batches

kernel = compiled("headrace.records._crc")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the extension was not built")


def batch_of(size: int, seed: int = 0) -> bytearray:
    batch = bytearray(random.Random(seed).randbytes(size))
    struct.pack_into(">i", batch, 8, size - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@needs_kernel
@given(
    sizes=st.lists(st.one_of(st.integers(HEADER_SIZE, 400), st.integers(HEADER_SIZE, 200_000)), max_size=6),
    before=st.integers(0, 2**32 - 1),
)
def test_is_the_crc_of_all_the_bytes(sizes: list[int], before: int) -> None:
    batches = b"".join(batch_of(size, seed) for seed, size in enumerate(sizes))
    assert kernel is not None
    assert kernel.crc_of_batches(batches, before) == crc32c(batches, before)


@needs_kernel
def test_a_batch_of_many_megabytes() -> None:
    batches = bytes(batch_of(17 * 1024 * 1024 + 61)) + bytes(batch_of(5_000))
    assert kernel is not None
    assert kernel.crc_of_batches(batches, 9) == crc32c(batches, 9)


@pytest.mark.parametrize("size", [100, 5_000], ids=["read", "combined"])
@pytest.mark.parametrize("is_pure", [False, True], ids=["compiled", "pure"])
def test_small_and_large_batches_both_ways(size: int, is_pure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_pure:
        monkeypatch.setattr(module, "_crc_of_batches", None)
    batches = b"".join(batch_of(size, seed) for seed in range(3))
    assert crc_of_batches(batches, 3, 77) == crc32c(batches, 77)


@needs_kernel
@pytest.mark.parametrize("at", [0, 30, 4_000, 9_999])
def test_what_has_rotted_since_does_not_match(at: int) -> None:
    batches = batch_of(5_000) + batch_of(5_000, 1)
    batches[at] ^= 4
    assert (crc_of_batches(batches, 2, 0) == crc32c(batches)) == (at == 0), "the first bytes are not the producer's"


@needs_kernel
@pytest.mark.parametrize(
    ("length", "cut"), [(4_988, 1), (4_989, 0), (48, 0), (-1, 0), (-13, 0), (2**31 - 1, 0), (4_988, 4_950)]
)
def test_only_whole_batches(length: int, cut: int) -> None:
    batch = batch_of(5_000)
    struct.pack_into(">i", batch, 8, length)
    assert kernel is not None
    with pytest.raises(ValueError, match="whole"):
        kernel.crc_of_batches(memoryview(batch)[: 5_000 - cut], 0)


@needs_kernel
@pytest.mark.parametrize("arguments", [(), (b"",), (b"", 0, 0), (b"", -1), (b"", "0"), (5, 0)])
def test_wrong_arguments_are_refused(arguments: tuple[object, ...]) -> None:
    assert kernel is not None
    with pytest.raises((TypeError, OverflowError)):
        kernel.crc_of_batches(*arguments)
