"""Both flushers leave the same bytes on disk, say the same when they cannot, and end when they are told."""

import asyncio
import contextlib
import mmap
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, RING_BYTES, batch_of, opened, read_values, turn_of_the_loop

from headrace.aligned import fresh_pages
from headrace.errors import HeadraceError, StorageFailed, StorageFull
from headrace.log.wal.file import RingFile
from headrace.log.wal.flusher import Flusher, FlusherKind, NativeFlusher, ThreadFlusher, fastest_flusher
from headrace.log.wal.format import BLOCK_SIZE

LARGE_RING = 64 * 1024 * 1024
ROOT = Path(__file__).parents[4]


class Writing:
    """A flusher over a fresh ring, one write at a time."""

    def __init__(self, kind: FlusherKind, file: RingFile) -> None:
        self.file = file
        self.flusher: Flusher = kind(file, self._done)
        self.outcomes: list[HeadraceError | None] = []
        self._waiting: asyncio.Future[HeadraceError | None] | None = None

    def _done(self, error: HeadraceError | None) -> None:
        self.outcomes.append(error)
        if self._waiting is not None:
            self._waiting.set_result(error)

    async def write(self, lsn: int, data: bytes) -> HeadraceError | None:
        self._waiting = asyncio.get_running_loop().create_future()
        self.flusher.write(lsn, image_of(data))
        return await self._waiting


@contextlib.contextmanager
def writing(
    directory: Path, kind: FlusherKind, *, is_direct: bool = False, capacity: int = RING_BYTES
) -> Iterator[Writing]:
    file = RingFile(directory / "ring", capacity=capacity, is_direct=is_direct)
    found = Writing(kind, file)
    try:
        yield found
    finally:
        found.flusher.close()
        file.close()


def image_of(data: bytes) -> memoryview:
    """The same bytes as direct I/O takes them."""
    image = memoryview(fresh_pages(len(data)))
    image[:] = data
    return image


@pytest.mark.requirement("R3.34")
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "cached"])
async def test_what_is_on_disk_is_what_was_handed_over(
    tmp_path: Path, each_flusher: FlusherKind, *, is_direct: bool
) -> None:
    chance = random.Random(7)
    blocks = [1, 2, 17, 300, 2048, 1]
    with writing(tmp_path, each_flusher, is_direct=is_direct, capacity=LARGE_RING) as ring:
        lsn = 0
        expected = b""
        for count in blocks:
            data = chance.randbytes(count * BLOCK_SIZE)
            assert await ring.write(lsn, data) is None
            expected += data
            lsn += len(data)
        assert ring.file.read(0, lsn) == expected
        assert not any(ring.file.read(lsn, BLOCK_SIZE))


async def test_a_place_that_is_not_zeroed_is_zeroed_first(tmp_path: Path, each_flusher: FlusherKind) -> None:
    with writing(tmp_path, each_flusher, capacity=LARGE_RING) as ring:
        far = 20 * 1024 * 1024
        assert ring.file.zeroed_end < far
        assert await ring.write(far, b"x" * BLOCK_SIZE) is None
        assert ring.file.zeroed_end >= ring.file.place(far) + BLOCK_SIZE
        assert ring.file.read(far, BLOCK_SIZE) == b"x" * BLOCK_SIZE


async def test_a_full_disk_is_said_in_our_words(tmp_path: Path, each_flusher: FlusherKind) -> None:
    """The zeroing finds it: what is zeroed has its place on the disk."""
    with writing(tmp_path, each_flusher) as ring:
        become(ring.file._zeroer.fileno(), "/dev/full", os.O_RDWR)
        error = await ring.write(0, bytes(BLOCK_SIZE))
        assert isinstance(error, StorageFull)
        assert str(error) == "could not write the WAL: [Errno 28] No space left on device"


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "cached"])
async def test_a_descriptor_that_takes_no_writes_fails_the_log(
    tmp_path: Path, each_flusher: FlusherKind, *, is_direct: bool
) -> None:
    async with opened(tmp_path, wal_direct=is_direct) as log:
        await log.append(batch_of(b"before"))
        become(log.store.file.write_fd, log.store.file.path, os.O_RDONLY)
        partition = log.partitions[0]
        partition.append(batch_of(b"never"), now_ms=NOW_MS)
        with pytest.raises(StorageFailed, match=r"^could not write the WAL: \[Errno 9\] Bad file descriptor$"):
            await log.store.wal.drain()
        assert [type(fault) for fault in log.faults] == [StorageFailed]
        with pytest.raises(StorageFailed):
            partition.append(batch_of(b"later"), now_ms=NOW_MS)
        assert await read_values(partition) == [b"before"]


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "cached"])
async def test_a_write_that_ends_short_is_no_success(
    tmp_path: Path, each_flusher: FlusherKind, *, is_direct: bool
) -> None:
    """The limit on a file's size lets the first half through and says no to the second."""
    data = os.urandom(16 * BLOCK_SIZE)
    with writing(tmp_path, each_flusher, is_direct=is_direct) as ring:
        ring.file.zero_until(RING_BYTES)
        with file_size_limit(ring.file.place(8 * BLOCK_SIZE)):
            error = await ring.write(0, data)
        assert isinstance(error, StorageFailed)
        assert "File too large" in str(error)
        assert ring.file.read(0, 8 * BLOCK_SIZE) == data[: 8 * BLOCK_SIZE]
        assert not any(ring.file.read(8 * BLOCK_SIZE, 8 * BLOCK_SIZE))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a disk that takes parts of writes")
@pytest.mark.parametrize(("is_direct", "bytes_max"), [(True, 3 * BLOCK_SIZE), (False, 5000), (False, 61)])
def test_short_writes_go_on_where_they_stopped(tmp_path: Path, *, is_direct: bool, bytes_max: int) -> None:
    """The native one only: Python's twin goes through `os.pwritev`, which cannot be held back from outside."""
    shim = tmp_path / "short_writes.so"
    source = ROOT / "tests" / "support" / "short_writes.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source)], check=True)
    script = f"""
import asyncio, random
from pathlib import Path
from tests.unit.log.wal.test_flusher import NativeFlusher, writing

async def main():
    with writing(Path({str(tmp_path)!r}), NativeFlusher, is_direct={is_direct}) as ring:
        ring.file.zero_until({RING_BYTES})
        lsn = 0
        for count in (1, 3, 20):
            data = random.Random(count).randbytes(count * {BLOCK_SIZE})
            assert await ring.write(lsn, data) is None
            assert ring.file.read(lsn, len(data)) == data
            lsn += len(data)

asyncio.run(main())
"""
    # Behind what is there: a sanitizer's runtime has to come first.
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {shim}".strip()
    environment = {**os.environ, "LD_PRELOAD": preloaded, "WRITE_BYTES_MAX": str(bytes_max)}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env=environment, timeout=120)


async def test_close_waits_for_the_write_under_way_and_tells_nobody(tmp_path: Path, each_flusher: FlusherKind) -> None:
    data = os.urandom(64 * BLOCK_SIZE)
    with writing(tmp_path, each_flusher) as ring:
        ring.file.zero_until(RING_BYTES)
        ring.flusher.write(0, image_of(data))
        ring.flusher.close()
        assert ring.file.read(0, len(data)) == data
        await turn_of_the_loop(5)
        assert ring.outcomes == []


async def test_a_log_closed_while_its_place_is_zeroed_tells_nobody(tmp_path: Path, each_flusher: FlusherKind) -> None:
    with writing(tmp_path, each_flusher) as ring:
        ring.flusher.write(0, image_of(bytes(BLOCK_SIZE)))
        ring.flusher.close()
        await asyncio.get_running_loop().shutdown_default_executor()
        await turn_of_the_loop(5)
        assert ring.outcomes == []


async def test_memory_stays_where_it_is_while_the_native_thread_may_read_it(tmp_path: Path) -> None:
    memory = bytearray(BLOCK_SIZE)
    with writing(tmp_path, NativeFlusher) as ring:
        ring.file.zero_until(RING_BYTES)
        image = memoryview(memory)
        ring.flusher.write(0, image)
        with pytest.raises(RuntimeError, match="a write is under way"):
            ring.flusher.write(BLOCK_SIZE, image)
        with pytest.raises(BufferError):
            image.release()
        while not ring.outcomes:
            await turn_of_the_loop()
        image.release()
        memory.append(0)


async def test_a_write_that_cannot_be_handed_over_holds_nothing(tmp_path: Path) -> None:
    memory = bytearray(2 * BLOCK_SIZE)
    with writing(tmp_path, NativeFlusher) as ring:
        ring.file.zero_until(RING_BYTES)
        with memoryview(memory) as image, image[::2] as scattered, pytest.raises(BufferError):
            ring.flusher.write(0, scattered)
        memory.append(0)
        assert await ring.write(0, bytes(BLOCK_SIZE)) is None
        ring.flusher.close()
        with pytest.raises(RuntimeError, match="closed"):
            ring.flusher.write(0, image_of(bytes(BLOCK_SIZE)))


async def test_the_native_thread_needs_no_interpreter(tmp_path: Path) -> None:
    """Nobody else gets the interpreter in here, and the bytes arrive all the same."""
    with writing(tmp_path, NativeFlusher) as ring:
        ring.file.zero_until(RING_BYTES)
        with mmap.mmap(ring.file.write_fd, RING_BYTES, prot=mmap.PROT_READ) as mapped, no_switching():
            place = ring.file.place(0)
            ring.flusher.write(0, image_of(b"x" * BLOCK_SIZE))
            deadline = time.monotonic() + 60.0
            while mapped[place] == 0 and time.monotonic() < deadline:
                pass
            assert mapped[place] == ord("x")


@pytest.mark.parametrize("kind", ["NativeFlusher", "ThreadFlusher"])
def test_a_process_may_end_without_closing(tmp_path: Path, kind: str) -> None:
    script = f"""
import asyncio
from pathlib import Path
from headrace.aligned import fresh_pages
from headrace.log.wal import flusher
from headrace.log.wal.file import RingFile

async def main():
    global kept
    file = RingFile(Path({str(tmp_path)!r}) / "ring", capacity={RING_BYTES}, is_direct=True)
    file.zero_until({RING_BYTES})
    kept = flusher.{kind}(file, lambda error: None)
    kept.write(0, memoryview(fresh_pages(512 * 1024)))

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("", "")


def test_the_twin_is_taken_where_the_extension_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_PURE", raising=False)
    assert fastest_flusher() is NativeFlusher
    monkeypatch.setitem(sys.modules, "headrace.log.wal._flusher", None)
    assert fastest_flusher() is ThreadFlusher


def become(fd: int, path: str | Path, flags: int) -> None:
    """`fd` is another file from now on."""
    other = os.open(path, flags)
    os.dup2(other, fd, inheritable=False)
    os.close(other)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def no_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
