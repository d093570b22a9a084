"""Objects that are files: verified where they lie, sent from there, and never with wrong bytes."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.tier_batches import raw_batch

from headrace.blob.local import LocalBlobStore
from headrace.blob.store import BlobStore
from headrace.clock import SystemClock
from headrace.errors import Corrupted, ObjectNotFound, StoreUnavailable
from headrace.file_range import FileRange, OpenFile
from headrace.ids import Partition, TopicId
from headrace.log.inspection import Inspection
from headrace.records.batch import Piece, bytes_of, iterate_batches
from headrace.telemetry.problems import Problems
from headrace.tier.block_cache import BlockCache
from headrace.tier.damage import DamagedRanges
from headrace.tier.disk_cache import DiskCache
from headrace.tier.format.object import Kind, ObjectBuilder
from headrace.tier.metrics import TierMetrics
from headrace.tier.pace import Pace, PacedDownloads
from headrace.tier.reader import TierReader
from headrace.tier.segments import LiveSegment, SegmentTable

TOPIC = TopicId(UUID(int=9).bytes)
KEY = "data/one"
MIB = 1024 * 1024
BATCHES = 64


class ObjectOn:
    """An object of 64 batches of 200 KiB on some store, and a reader of it."""

    def __init__(
        self,
        store: BlobStore,
        metrics: TierMetrics,
        *,
        size_max: int = 64 * MIB,
        open_file: Callable[[str], OpenFile] | None = None,
        disk: DiskCache | None = None,
    ) -> None:
        self.store = store
        self.metrics = metrics
        self.pieces: list[Piece] = []
        downloads = PacedDownloads(
            Pace(lag_ms_max=0, floor=MIB), concurrency=8, clock=SystemClock(), metrics=metrics, written_bytes=lambda: 0
        )
        self.cache = BlockCache(
            store, size_max=size_max, downloads=downloads, metrics=metrics, open_file=open_file, disk=disk
        )
        self.table = SegmentTable()
        self.reader = TierReader(
            self.table,
            self.cache,
            read_ahead_bytes=0,
            cache_bytes=size_max,
            metrics=metrics,
            damage=DamagedRanges(metrics=metrics, problems=Problems()),
            inspection=Inspection(),
        )

    async def write(self) -> None:
        self.batches = [raw_batch(number, payload=os.urandom(200 * 1024)) for number in range(BATCHES)]
        builder = ObjectBuilder(Kind.STREAM)
        runs = builder.add(TOPIC, Partition(0), self.batches)
        chunks = list(builder.chunks())
        await self.store.put(KEY, chunks)
        self.table.add(
            (TOPIC, 0),
            LiveSegment(
                base_offset=0,
                end_offset=runs[-1].end_offset,
                object_id=1,
                key=KEY,
                object_size=sum(map(len, chunks)),
                position=0,
                length=builder.body_size,
                record_count=BATCHES,
                max_timestamp_ms=0,
                leader_epoch=0,
                committed_ms=0,
                revision=1,
            ),
        )


class OneObject(ObjectOn):
    """On the local store."""

    def __init__(self, root: Path) -> None:
        self.path = root / KEY
        local = LocalBlobStore(root)
        super().__init__(local, TierMetrics(), open_file=local.open_file)

    async def read(self, offset: int, max_bytes: int = MIB) -> list[bytes]:
        pieces = await self.reader.read(TOPIC, 0, offset=offset, end_offset=BATCHES, max_bytes=max_bytes)
        assert all(isinstance(piece, FileRange) for piece in pieces)
        return [bytes(batch) for piece in pieces for _, batch in iterate_batches(bytes_of(piece))]

    def damage(self, position: int) -> None:
        """One bit, and nothing of the file left in the system's memory."""
        descriptor = os.open(self.path, os.O_RDWR)
        (byte,) = os.pread(descriptor, 1, position)
        os.pwrite(descriptor, bytes([byte ^ 4]), position)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[OneObject]:
    found = OneObject(tmp_path)
    await found.write()
    yield found
    await found.cache.close()
    await found.store.close()


async def test_every_read_is_a_range_of_the_file_with_the_right_batches(one: OneObject) -> None:
    for offset in (0, 1, 40, 63):
        batches = await one.read(offset)
        assert batches == one.batches[offset : offset + len(batches)]
        assert batches


async def test_a_read_inside_one_batch_still_gives_it_whole(one: OneObject) -> None:
    assert await one.read(7, max_bytes=1) == [one.batches[7]]


async def test_wrong_bytes_are_refused_and_their_neighbours_served(one: OneObject) -> None:
    one.damage(60 * len(one.batches[0]))
    assert (await one.read(0))[0] == one.batches[0]
    with pytest.raises(Corrupted, match=KEY):
        await one.read(60)
    assert one.metrics.tier_corrupt_runs_total == 1


async def test_what_rots_after_it_was_verified_is_noticed_once_it_has_to_be_read_from_the_disk_again(
    one: OneObject,
) -> None:
    assert await one.read(3, max_bytes=1) == [one.batches[3]]
    one.damage(3 * len(one.batches[0]) + 500)
    with pytest.raises(Corrupted):
        await one.read(3, max_bytes=1)


async def test_a_file_that_was_cut_short_is_not_served(one: OneObject) -> None:
    assert await one.read(3, max_bytes=1) == [one.batches[3]]
    os.truncate(one.path, 100)
    with pytest.raises((Corrupted, StoreUnavailable)):
        await one.read(3, max_bytes=1)


async def test_a_deleted_object_is_let_go_of_and_missed(one: OneObject) -> None:
    await one.read(0)
    await one.store.delete([KEY])
    one.cache.forget(KEY)
    with pytest.raises(ObjectNotFound):
        await one.cache.footer(KEY, 1000)
