"""Pieces written in whole blocks: the kernel and its twin leave the same file, whatever the pieces are."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.aligned import BLOCK_SIZE, AlignedBuffer
from headrace.blob import local as module
from headrace.compiled import compiled

kernel = compiled("headrace.blob._through")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the extension was not built")


@pytest.fixture(params=["compiled", "pure"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(module, "_kernel", None)


@pytest.mark.usefixtures("each_way")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=st.lists(st.integers(0, 3 * BLOCK_SIZE + 1), max_size=8), blocks=st.integers(1, 3))
def test_a_file_has_all_pieces_in_whole_blocks(tmp_path: Path, sizes: list[int], blocks: int) -> None:
    pieces = [os.urandom(size) for size in sizes]
    views = [memoryview(b"?" + piece)[1:] for piece in pieces]
    path = tmp_path / "written"
    with path.open("wb", buffering=0) as file:
        size = module._write_through(file.fileno(), views, AlignedBuffer(blocks * BLOCK_SIZE))
    written = path.read_bytes()
    assert size == sum(sizes)
    assert written[:size] == b"".join(pieces)
    assert len(written) == (size + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("size", [1, 5 * BLOCK_SIZE])
def test_what_the_disk_says_is_passed_on(size: int) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left") as refused:
            module._write_through(descriptor, [bytes(size)], AlignedBuffer(2 * BLOCK_SIZE))
    finally:
        os.close(descriptor)
    assert refused.value.errno == errno.ENOSPC


@needs_kernel
def test_pieces_are_let_go_of_whatever_comes(tmp_path: Path) -> None:
    piece, staging = bytearray(10), bytearray(BLOCK_SIZE)
    with (tmp_path / "written").open("wb", buffering=0) as file:
        assert kernel is not None
        with pytest.raises(TypeError):
            kernel.write_through(file.fileno(), [piece, "no memory"], staging, BLOCK_SIZE)
        with pytest.raises(TypeError):
            kernel.write_through(file.fileno(), 5, staging, BLOCK_SIZE)
        with pytest.raises(ValueError, match="whole blocks"):
            kernel.write_through(file.fileno(), [piece], bytearray(BLOCK_SIZE + 1), BLOCK_SIZE)
        assert kernel.write_through(file.fileno(), [piece], staging, BLOCK_SIZE) == 10
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.write_through(-1, [piece], staging, BLOCK_SIZE)
    # Refused as long as somebody holds on to the memory.
    piece.append(0)
    staging.append(0)
