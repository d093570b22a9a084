"""Many batches at once: the kernel and its twin see the same, and take the same for whole.

CRCs of many batches come from their own: the same as of all the bytes, as long as those are what their producers sent.
"""

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.compiled import compiled
from headrace.errors import Corrupted
from headrace.records import stretch as module
from headrace.records.batch import HEADER_SIZE, read_header
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.records.stretch import Summary, crc_of_batches, summary_of

kernel = compiled("headrace.records._stretch")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the extension was not built")


@pytest.fixture(params=["compiled", "pure"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(module, "_kernel", None)


def stretch_of(*batches: bytes | bytearray, base: int = 7) -> bytearray:
    """Real batches with offsets that follow each other."""
    for batch in batches:
        assert isinstance(batch, bytearray)
        struct.pack_into(">q", batch, 0, base)
        base = read_header(batch).end_offset
    return bytearray(b"".join(batches))


def records(count: int, *, size: int = 10, time_ms: int = 1000, **options: int) -> bytearray:
    return build_batch([NewRecord(value=bytes(size))] * count, now_ms=time_ms, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("each_way")
def test_a_summary_says_what_its_batches_have() -> None:
    marker = build_marker(is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=900)
    plain, later = records(3, time_ms=2000), records(2, time_ms=1500)
    batches = stretch_of(plain, marker, later)
    struct.pack_into(">i", batches, len(plain) + len(marker) + 12, 4)
    whole = summary_of(batches, 0, 1 << 20)
    assert whole == Summary(len(batches), 3, 7, 12, 4, 2000, 6, 1, read_header(marker).attributes)
    assert summary_of(batches, 0, len(plain)) == summary_of(plain, 0, 1)
    assert summary_of(batches, 0, len(plain) + 1).batch_count == 2
    assert summary_of(memoryview(batches), len(plain), 1).attributes == read_header(marker).attributes
    assert summary_of(batches, 0, 0).batch_count == 1, "one at least"


@needs_kernel
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(1, 60), st.integers(0, 255)), max_size=8), st.data())
def test_kernel_and_twin_see_the_same(junk: bytes, changes: list[tuple[int, int]], data: st.DataObject) -> None:
    batches = stretch_of(records(2), records(1, size=200), records(4))
    second = read_header(batches).size
    for at, value in changes:
        batches[second + at] = value
    batches += junk
    start = data.draw(st.sampled_from([0, second, len(batches), 1]))
    size_min = data.draw(st.integers(0, len(batches) + 5))
    outcomes: list[Summary | None] = []
    for summarise in (summary_of, module._summary_of):
        try:
            outcomes.append(summarise(batches, start, size_min))
        except Corrupted:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("cut", [1, 60, 61])
def test_a_batch_that_is_cut_short_is_refused(cut: int) -> None:
    batches = stretch_of(records(1), records(1))
    with pytest.raises(Corrupted, match="no whole batch at"):
        summary_of(batches[:-cut], 0, 1 << 20)


@pytest.mark.usefixtures("each_way")
def test_offsets_must_rise() -> None:
    batches = stretch_of(records(3)) + stretch_of(records(1), base=9)
    with pytest.raises(Corrupted, match="the batch at"):
        summary_of(batches, 0, 1 << 20)


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


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("size", [100, 5_000], ids=["read", "combined"])
def test_small_and_large_batches(size: int) -> None:
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


@needs_kernel
@pytest.mark.parametrize(
    "arguments", [(), (b"", 0), (b"", 0, 0, 0), (b"", "0", 0), (b"", 0, "0"), (5, 0, 0), (b"", 2**70, 0), (b"", -1, 0)]
)
def test_wrong_arguments_of_a_summary_are_refused(arguments: tuple[object, ...]) -> None:
    assert kernel is not None
    with pytest.raises((TypeError, OverflowError, ValueError)):
        kernel.summary_of(*arguments)
