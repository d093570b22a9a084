"""Reading objects back: right bytes for any question, one download for many readers, ahead of sequential ones only."""

import asyncio
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import turn_of_the_loop
from tests.support.tier_batches import raw_batch

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer
from headrace.clock import SystemClock
from headrace.errors import DamagedRecords, StoreUnavailable
from headrace.ids import Partition, TopicId
from headrace.log.inspection import Inspection
from headrace.records.batch import bytes_of, iterate_batches
from headrace.telemetry.problems import Problems
from headrace.tier.block import BLOCK_BYTES
from headrace.tier.block_cache import BlockCache
from headrace.tier.damage import DamagedRanges
from headrace.tier.format.object import Kind, ObjectBuilder, Run
from headrace.tier.metrics import TierMetrics
from headrace.tier.pace import Pace, PacedDownloads
from headrace.tier.reader import TierReader
from headrace.tier.segments import LiveSegment, SegmentTable

TOPIC = UUID(int=7).bytes
MIB = 1024 * 1024


class CountingStore(MemoryBlobStore):
    gets = 0
    gate: asyncio.Event | None = None
    failures = 0

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        self.gets += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("503")
        return await super().get_range(key, position, length)


def _cache(store: MemoryBlobStore, metrics: TierMetrics, size_max: int) -> BlockCache:
    downloads = PacedDownloads(
        Pace(lag_ms_max=0, floor=MIB), concurrency=8, clock=SystemClock(), metrics=metrics, written_bytes=lambda: 0
    )
    return BlockCache(store, size_max=size_max, downloads=downloads, metrics=metrics)


class Bench:
    """Objects of `batches` batches of `size` bytes each, one after the other, holding offsets without a gap.

    The same for every one of `partitions`.
    """

    def __init__(
        self,
        *,
        objects: int = 1,
        batches: int = 12,
        size: int = MIB,
        ahead: int = 0,
        records: int = 1,
        partitions: int = 1,
        cache_bytes: int = 256 * MIB,
    ) -> None:
        self.store = CountingStore(SystemClock())
        self.metrics = TierMetrics()
        self.table = SegmentTable()
        self.end = objects * batches * records
        self.memory_start: int | None = None
        for partition in range(partitions):
            for number in range(objects):
                raw = [
                    raw_batch((number * batches + n) * records, records, payload=bytes(size)) for n in range(batches)
                ]
                self._add(partition * objects + number + 1, partition, raw)
        cache = _cache(self.store, self.metrics, cache_bytes)
        self.reader = TierReader(
            self.table,
            cache,
            read_ahead_bytes=ahead,
            cache_bytes=cache_bytes,
            metrics=self.metrics,
            damage=DamagedRanges(metrics=self.metrics, problems=Problems()),
            inspection=Inspection(),
            memory_start=lambda place: self.memory_start,
        )

    def _add(self, object_id: int, partition: int, batches: list[bytes]) -> None:
        builder = ObjectBuilder(Kind.STREAM)
        runs = builder.add(TopicId(TOPIC), Partition(partition), batches)
        self.store._objects[f"data/{object_id}"] = _held(b"".join(builder.chunks()))
        self._place(object_id, partition, builder, runs)

    def _place(self, object_id: int, partition: int, builder: ObjectBuilder, runs: list[Run]) -> None:
        segment = LiveSegment(
            base_offset=runs[0].base_offset,
            end_offset=runs[-1].end_offset,
            object_id=object_id,
            key=f"data/{object_id}",
            object_size=builder.size,
            position=runs[0].position,
            length=sum(run.length for run in runs),
            record_count=sum(run.record_count for run in runs),
            max_timestamp_ms=0,
            leader_epoch=0,
            committed_ms=0,
            revision=1,
        )
        self.table.add((TOPIC, partition), segment)

    async def read(
        self, offset: int, max_bytes: int, end: int | None = None, *, partition: int = 0
    ) -> list[tuple[int, int]]:
        """Base and end offset of every batch that a read gives."""
        pieces = await self.reader.read(
            TOPIC, partition, offset=offset, end_offset=end or self.end, max_bytes=max_bytes
        )
        return [(h.base_offset, h.end_offset) for piece in pieces for h, _ in iterate_batches(bytes_of(piece))]


def _held(data: bytes):  # type: ignore[no-untyped-def]  # the memory store's own record
    from headrace.blob.memory import _Held

    return _Held(data, 0)


SMALL = Bench(objects=3, batches=8, size=1000, records=5)


@settings(deadline=None)
@given(offset=st.integers(0, 119), max_bytes=st.integers(1, 30_000), end=st.integers(1, 120))
def test_any_read_begins_with_the_batch_that_holds_its_offset(offset: int, max_bytes: int, end: int) -> None:
    found = asyncio.run(_fresh(SMALL).read(offset, max_bytes, end))
    if offset >= end // 5 * 5:
        assert found == []
        return
    assert found[0][0] <= offset < found[0][1]
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert found[-1][1] <= end
    assert len(found) == 1 or sum(1061 for _ in found) <= max_bytes


def _fresh(bench: Bench) -> Bench:
    """The same objects with an empty cache: a cache belongs to one event loop."""
    cache = _cache(bench.store, bench.metrics, 256 * MIB)
    bench.reader = TierReader(
        bench.table,
        cache,
        read_ahead_bytes=0,
        cache_bytes=256 * MIB,
        metrics=bench.metrics,
        damage=DamagedRanges(metrics=bench.metrics, problems=Problems()),
        inspection=Inspection(),
    )
    return bench


async def test_readers_of_one_block_share_one_download() -> None:
    bench = Bench()
    await bench.read(0, 1)
    bench.store.gets = 0
    bench.store.gate = asyncio.Event()
    readers = [asyncio.ensure_future(bench.read(11, MIB)) for _ in range(5)]
    await turn_of_the_loop()
    readers[0].cancel()
    await turn_of_the_loop()
    bench.store.gate.set()
    results = await asyncio.gather(*readers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(result == [(11, 12)] for result in results[1:])
    assert bench.store.gets == 1


async def test_sequential_reader_is_read_ahead_of_and_a_random_one_is_not() -> None:
    bench = Bench(batches=60, ahead=8 * BLOCK_BYTES)
    for offset in (50, 3, 27, 41):
        await bench.read(offset, MIB)
    assert bench.store.gets == 1 + 4
    sequential = Bench(batches=60, ahead=8 * BLOCK_BYTES)
    offset = 0
    for _ in range(8):
        found = await sequential.read(offset, MIB)
        offset = found[-1][1]
        await turn_of_the_loop()
    await turn_of_the_loop()
    # Two blocks were read from, and the index; what came ahead of them came in pairs.
    assert sequential.metrics.tier_cache_misses_total > 2 + 4
    assert sequential.store.gets < sequential.metrics.tier_cache_misses_total


@pytest.mark.parametrize("batches", [5, 8, 12, 60])
async def test_a_scan_takes_at_most_one_get_per_four_mebibytes(batches: int) -> None:
    """Indexes included, from small objects to large ones."""
    bench = Bench(objects=120 // batches, batches=batches, ahead=8 * BLOCK_BYTES)
    offset = 0
    while offset < bench.end:
        offset = (await bench.read(offset, MIB))[-1][1]
        await turn_of_the_loop()
    assert bench.store.gets <= 120 * MIB / (4 * MIB)


async def test_what_is_fetched_ahead_stays_until_it_is_asked_for_however_many_read() -> None:
    """Eight scans side by side, each of which would be read ahead of by a third of the cache if it were alone."""
    bench = Bench(partitions=8, batches=24, ahead=8 * BLOCK_BYTES, cache_bytes=96 * MIB)
    places = [0] * 8
    while min(places) < bench.end:
        for partition, offset in enumerate(places):
            found = await bench.read(offset, MIB, partition=partition)
            places[partition] = found[-1][1]
            await turn_of_the_loop()
    assert bench.metrics.tier_fetched_bytes_total == bench.metrics.tier_read_bytes_total


async def test_what_is_fetched_ahead_of_a_slow_reader_outlives_what_a_fast_one_has_read() -> None:
    bench = Bench(partitions=2, batches=48, ahead=8 * BLOCK_BYTES, cache_bytes=48 * MIB)
    slow = fast = 0
    for _ in range(4):
        slow = (await bench.read(slow, MIB))[-1][1]
        await turn_of_the_loop()
    while fast < 24:
        fast = (await bench.read(fast, MIB, partition=1))[-1][1]
        await turn_of_the_loop()
    gets = bench.store.gets
    await bench.read(slow, MIB)
    assert bench.store.gets == gets


async def test_a_small_object_comes_whole_for_all_its_partitions() -> None:
    bench = Bench(batches=4, size=1000)
    assert await bench.read(0, MIB) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert bench.store.gets == 1


class Shared(Bench):
    """One partition's batches in each of its places in objects that `partitions` of them share."""

    def __init__(self, *, partitions: int, objects: int, size: int) -> None:
        super().__init__(objects=0)
        self.end = objects
        for number in range(objects):
            builder = ObjectBuilder(Kind.STREAM_SET)
            placed = [
                builder.add(TopicId(TOPIC), Partition(index), [raw_batch(number, 1, payload=bytes(size))])
                for index in range(partitions)
            ]
            self.store._objects[f"data/{number}"] = _held(b"".join(builder.chunks()))
            for index, (run,) in enumerate(placed):
                self._place(number, index, builder, [run])


@pytest.mark.parametrize("at_once", [1, 100])
async def test_readers_of_many_quiet_partitions_share_gets(at_once: int) -> None:
    """A hundred partitions with 100 KiB in each object: not a GET for each, but one for every four mebibytes.

    An object costs its index, the first partition's own block, and three blocks of company.
    """
    bench = Shared(partitions=100, objects=3, size=100 * 1024)
    for first in range(0, 100, at_once):
        chosen = range(first, first + at_once)
        found = await asyncio.gather(*(bench.read(0, MIB, partition=partition) for partition in chosen))
        assert found == [[(0, 1), (1, 2), (2, 3)]] * at_once
    assert bench.store.gets <= 3 * (1 + 1 + 3)
    assert bench.metrics.tier_fetched_bytes_total == bench.metrics.tier_read_bytes_total


async def test_a_reader_of_one_quiet_partition_brings_nothing_for_others() -> None:
    bench = Shared(partitions=100, objects=1, size=100 * 1024)
    assert await bench.read(0, MIB, partition=7) == [(0, 1)]
    assert bench.metrics.tier_fetched_bytes_total == bench.metrics.tier_read_bytes_total


async def test_a_corrupt_run_does_not_hide_its_neighbours_in_the_same_download() -> None:
    bench = Bench(batches=8, ahead=8 * BLOCK_BYTES)
    held = bench.store._objects["data/1"].data
    damaged = bytearray(held)
    damaged[6 * MIB] ^= 0xFF
    bench.store._objects["data/1"] = _held(bytes(damaged))
    assert (await bench.read(0, MIB))[0] == (0, 1)
    with pytest.raises(DamagedRecords, match=r"offsets 5 to 5 cannot be read: data/1"):
        await bench.read(5, MIB)
    assert (await bench.read(3, MIB))[0] == (3, 4)
    assert await bench.read(3, 8 * MIB) == [(3, 4), (4, 5)]
    assert (await bench.read(6, MIB))[0] == (6, 7)


async def test_reading_ahead_goes_on_into_the_next_object() -> None:
    bench = Bench(objects=4, batches=5, ahead=4 * BLOCK_BYTES)
    offset = 0
    while offset < bench.end:
        offset = (await bench.read(offset, 2 * MIB))[-1][1]
    assert bench.metrics.tier_fetched_bytes_total == bench.metrics.tier_read_bytes_total


async def test_what_memory_has_is_not_read_ahead_and_is_there_for_who_asks() -> None:
    bench = Bench(objects=4, batches=5, ahead=8 * BLOCK_BYTES)
    bench.memory_start = 9
    offset = 0
    while offset < bench.memory_start:
        offset = (await bench.read(offset, MIB, bench.memory_start))[-1][1]
    # Two objects of five megabytes: each is one block, and memory begins within the second.
    assert 2 * 5 * MIB <= bench.metrics.tier_fetched_bytes_total < 2 * 5.1 * MIB
    assert await bench.read(17, MIB) == [(17, 18)]


async def test_failed_download_is_not_remembered() -> None:
    bench = Bench()
    bench.store.failures = 1
    with pytest.raises(StoreUnavailable):
        await bench.read(0, MIB)
    assert (await bench.read(0, MIB))[0] == (0, 1)


async def test_batch_larger_than_the_limit_is_given_alone() -> None:
    bench = Bench(batches=3, size=3 * MIB)
    assert await bench.read(1, 1000) == [(1, 2)]


async def test_segments_are_counted_and_weighed() -> None:
    bench = Bench(objects=3, batches=2, size=1000)
    assert bench.reader.segment_count(TOPIC, 0) == 3
    assert bench.reader.size_bytes(TOPIC, 0) == 3 * 2 * 1061
    assert bench.reader.segment_count(TOPIC, 1) == 0
    assert await bench.reader.newest(TOPIC, 1) is None


async def test_catching_up_takes_a_bounded_share_of_the_store() -> None:
    """Many readers of many blocks: no more downloads at once than the setting allows, and each reader is served."""
    bench = Bench(objects=40, batches=4)
    in_flight = most = 0
    fetch = bench.store.get_range

    async def counted(key: str, position: int, length: int) -> Buffer:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await turn_of_the_loop()
        try:
            return await fetch(key, position, length)
        finally:
            in_flight -= 1

    bench.store.get_range = counted  # type: ignore[method-assign]  # counts what is under way
    found = await asyncio.gather(*(bench.read(offset, MIB) for offset in range(0, bench.end, 4)))
    assert [each[0][0] for each in found] == list(range(0, bench.end, 4))
    assert most <= 8
