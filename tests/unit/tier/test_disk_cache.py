"""What was read from a bucket once is read from the disk the second time, and the disk is never believed."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.tier_node import eventually
from tests.unit.tier.test_object_files import BATCHES, KEY, MIB, TOPIC, ObjectOn

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer
from headrace.clock import SystemClock
from headrace.file_range import FileRange
from headrace.records.batch import bytes_of, iterate_batches
from headrace.tier.disk_cache import DiskCache
from headrace.tier.metrics import TierMetrics

SMALL = 8 * MIB
"""Of the read cache: it cannot hold the object of 12.5 MiB."""


class Bucket(MemoryBlobStore):
    gets = 0

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        self.gets += 1
        return await super().get_range(key, position, length)


class Cached(ObjectOn):
    store: Bucket

    def __init__(self, directory: Path, *, bytes_max: int = 64 * MIB) -> None:
        self.directory = directory
        self.metrics = TierMetrics()
        self.disk = DiskCache(directory, bytes_max=bytes_max, metrics=self.metrics)
        super().__init__(Bucket(SystemClock()), self.metrics, size_max=SMALL, disk=self.disk)

    async def read_all(self) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < BATCHES:
            pieces = await self.reader.read(TOPIC, 0, offset=len(found), end_offset=BATCHES, max_bytes=MIB)
            self.pieces += pieces
            found += [bytes(batch) for piece in pieces for _, batch in iterate_batches(bytes_of(piece))]
        return found

    async def settled(self) -> None:
        await eventually(lambda: self.disk._pending_bytes == 0)


@pytest.fixture
async def cached(tmp_path: Path) -> AsyncIterator[Cached]:
    found = Cached(tmp_path / "cache")
    await found.write()
    yield found
    await found.cache.close()


async def test_the_second_reading_comes_from_the_disk_without_a_request(cached: Cached) -> None:
    assert await cached.read_all() == cached.batches
    await cached.settled()
    gets = cached.store.gets
    cached.pieces.clear()
    assert await cached.read_all() == cached.batches
    assert cached.store.gets == gets
    assert any(isinstance(piece, FileRange) for piece in cached.pieces)
    assert cached.metrics.tier_disk_cache_hits_total > 0


async def test_what_the_disk_has_changed_is_fetched_again(cached: Cached) -> None:
    await cached.read_all()
    await cached.settled()
    for path in cached.directory.iterdir():
        path.write_bytes(os.urandom(path.stat().st_size))
    assert await cached.read_all() == cached.batches


async def test_what_somebody_has_deleted_from_the_disk_is_fetched_again(cached: Cached) -> None:
    await cached.read_all()
    await cached.settled()
    for path in cached.directory.iterdir():
        path.unlink()
    assert await cached.read_all() == cached.batches


async def test_a_deleted_object_leaves_the_disk(cached: Cached) -> None:
    await cached.read_all()
    await cached.settled()
    assert list(cached.directory.iterdir())
    cached.cache.forget(KEY)
    assert not list(cached.directory.iterdir())
    assert cached.metrics.tier_disk_cache_bytes == 0


async def test_the_disk_space_is_bounded(tmp_path: Path) -> None:
    cached = Cached(tmp_path / "cache", bytes_max=6 * MIB)
    await cached.write()
    assert await cached.read_all() == cached.batches
    await cached.settled()
    assert cached.metrics.tier_disk_cache_bytes <= 6 * MIB
    assert await cached.read_all() == cached.batches
    await cached.cache.close()


async def test_a_disk_that_takes_nothing_only_costs_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, position: int, data: memoryview) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("headrace.tier.disk_cache._write", full)
    cached = Cached(tmp_path / "cache")
    await cached.write()
    assert await cached.read_all() == cached.batches
    await cached.settled()
    assert await cached.read_all() == cached.batches
    assert cached.metrics.tier_disk_cache_bytes == 0
    await cached.cache.close()


async def test_a_start_begins_with_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "17").write_bytes(b"of another life")
    cached = Cached(tmp_path / "cache")
    assert not list(cached.directory.iterdir())
    await cached.cache.close()
