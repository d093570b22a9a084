"""Fetch: enough or not enough, woken or expired, hot or cold, in the order and within the limits asked for."""

import asyncio
import gc
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from tests.support.logs import NOW_MS, Opened, batch_of, opened, turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.broker.deferred import Deferred
from headrace.broker.fetch import Fetch, Isolation, PartitionRead, ReadEnd, ReadSpec
from headrace.errors import CorruptBatch, NotLeader, OffsetOutOfRange, StorageFailed
from headrace.log.partition import PartitionLog
from headrace.records.batch import Piece, bytes_of, iterate_batches
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

LONG = 60_000
SIZE = len(batch_of(b"x" * 100))


def spec(partition: PartitionLog, offset: int = 0, max_bytes: int = 1 << 20) -> ReadSpec:
    return ReadSpec(partition, offset, max_bytes)


def read(
    fetch: Fetch,
    *specs: ReadSpec,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    wait_ms: int = LONG,
    isolation: Isolation = Isolation.UNCOMMITTED,
) -> Deferred[list[PartitionRead]]:
    return fetch.read(specs, min_bytes=min_bytes, max_bytes=max_bytes, wait_ms=wait_ms, isolation=isolation)


def counts(deferred: Deferred[list[PartitionRead]]) -> list[int]:
    """Batches of each partition."""
    return [len(list(iterate_batches(b"".join(map(bytes_of, row.slices))))) for row in deferred.result()]


async def feed(log: Opened, partition: int = 0, times: int = 1) -> None:
    for _ in range(times):
        await log.append(batch_of(b"x" * 100), partition)
    await turn_of_the_loop(2)


def _transactional(value: bytes, *, sequence: int = 0) -> bytearray:
    return build_batch(
        [NewRecord(value=value)],
        now_ms=NOW_MS,
        producer_id=5,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def _marker() -> bytearray:
    return build_marker(is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)


def _empty_batch(span: int) -> bytearray:
    """No records, and `span` offsets: compaction leaves such batches, and so does a log that passes offsets over."""
    batch = build_batch([], now_ms=NOW_MS)
    struct.pack_into(">i", batch, 23, span - 1)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def left_to_the_collector() -> set[type]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.fixture
def fetch() -> Fetch:
    return Fetch(ManualClock())


@pytest.mark.trap(8, 9)
async def test_enough_is_answered_at_once_and_too_little_waits(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        waiting = read(fetch, spec(partition), min_bytes=SIZE * 3)
        await feed(log, times=2)
        assert (waiting.is_done, fetch.parked_count) == (False, 1)
        await feed(log)
        assert counts(waiting) == [3]
        assert fetch.parked_count == 0
        assert read(fetch, spec(partition), min_bytes=SIZE * 3).is_done


@pytest.mark.requirement("R4.40")
@pytest.mark.trap(8)
async def test_wait_ends_with_what_there_is(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await feed(log)
        assert counts(read(fetch, spec(partition), min_bytes=SIZE * 3, wait_ms=0)) == [1]
        waiting = read(fetch, spec(partition), min_bytes=SIZE * 3, wait_ms=5)
        assert not waiting.is_done
        await waiting
        assert counts(waiting) == [1]
        assert fetch.parked_count == 0
        assert partition._waiters in (None, [])


@pytest.mark.requirement("R4.41")
async def test_bytes_of_all_partitions_count_together(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path, partitions=3) as log:
        waiting = read(fetch, *map(spec, log.partitions), min_bytes=SIZE * 3)
        await feed(log, 2, times=2)
        assert not waiting.is_done
        await feed(log, 0)
        assert counts(waiting) == [1, 0, 2]


async def test_one_flush_feeds_several_partitions_of_a_waiting_read(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path, partitions=3) as log:
        waiting = read(fetch, *map(spec, log.partitions))
        for partition in log.partitions:
            partition.append(batch_of(b"x"), now_ms=NOW_MS)
        await log.store.wal.drain()
        await turn_of_the_loop(2)
        assert counts(waiting) == [1, 1, 1]


@pytest.mark.trap(10)
async def test_limits_are_spent_in_order_and_the_first_batch_comes_above_them(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path, partitions=3) as log:
        for index in (1, 2):
            await feed(log, index, times=4)
        empty, first, second = log.partitions
        order = (spec(empty), spec(second), spec(first))
        for max_bytes, expected in (
            (0, [0, 1, 0]),
            (-5, [0, 1, 0]),
            (1, [0, 1, 0]),
            (SIZE * 5, [0, 4, 1]),
            (SIZE * 6 - 1, [0, 4, 1]),
            (SIZE * 100, [0, 4, 4]),
        ):
            assert counts(read(fetch, *order, max_bytes=max_bytes, wait_ms=0)) == expected, max_bytes
        small = (spec(empty, max_bytes=0), spec(second, max_bytes=1), spec(first, max_bytes=1))
        assert counts(read(fetch, *small, wait_ms=0)) == [0, 1, 0]


@pytest.mark.requirement("R4.43")
async def test_wrong_offset_is_the_error_of_its_partition_and_does_not_wait(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path, partitions=2) as log:
        await feed(log, 1)
        good, bad = spec(log.partitions[1]), spec(log.partitions[0], 7)
        found = read(fetch, bad, good, min_bytes=1 << 20)
        assert found.is_done
        assert counts(found) == [0, 1]
        assert [type(row.error) for row in found.result()] == [OffsetOutOfRange, type(None)]


async def test_deleted_partition_ends_the_wait_with_an_error(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        waiting = read(fetch, spec(partition))
        log.store.remove(partition)
        await turn_of_the_loop(2)
        assert [type(row.error) for row in waiting.result()] == [NotLeader]
        assert fetch.parked_count == 0


async def test_records_that_retention_takes_end_the_wait_too(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await feed(log, times=3)
        waiting = read(fetch, spec(partition, 1), min_bytes=1 << 20, wait_ms=5)
        partition.advance_log_start(3)
        assert type((await waiting)[0].error) is OffsetOutOfRange


async def test_who_has_left_is_not_waited_for(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        waiting = read(fetch, spec(partition))
        waiting.abandon()
        assert fetch.parked_count == 0
        await feed(log)
        assert not waiting.is_done


@pytest.mark.requirement("R4.38")
@pytest.mark.trap(28)
async def test_committed_reader_stops_at_the_stable_end_and_hears_of_aborts(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await feed(log)
        await log.append(_transactional(b"t"))
        open_read = read(fetch, spec(partition), wait_ms=0, isolation=Isolation.COMMITTED)
        assert (counts(open_read), open_read.result()[0].aborted) == ([1], [])
        assert read(fetch, spec(partition), wait_ms=0).result()[0].aborted is None
        waiting = read(fetch, spec(partition, 1), isolation=Isolation.COMMITTED)
        assert not waiting.is_done
        marker = build_marker(is_commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)
        partition.append_control(marker, now_ms=NOW_MS)
        await log.store.wal.drain()
        await turn_of_the_loop(2)
        assert counts(waiting) == [2]
        assert [(each.producer_id, each.first_offset) for each in waiting.result()[0].aborted or []] == [(5, 1)]


@pytest.mark.parametrize("loss", ["records deleted", "topic deleted"])
async def test_what_is_deleted_while_the_disk_is_read_is_not_served(
    tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """With the records the log forgets which of them were aborted: a committed reader would take them for good ones."""
    read_cold = PartitionLog.read_cold_pieces

    async def too_slow(self: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> list[Piece]:
        found = await read_cold(self, offset, max_bytes, end_offset)
        if loss == "topic deleted":
            log.store.remove(self)
        else:
            self.advance_log_start(20)
        return found

    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for number in range(40):
            await log.append(_transactional(b"x" * 1000, sequence=number))
        marker = build_marker(is_commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)
        partition.append_control(marker, now_ms=NOW_MS)
        await log.store.wal.drain()
        assert partition.drop_chunk()
        monkeypatch.setattr(PartitionLog, "read_cold_pieces", too_slow)
        expected = NotLeader if loss == "topic deleted" else OffsetOutOfRange
        (row,) = await read(fetch, spec(partition), isolation=Isolation.COMMITTED)
        assert (type(row.error), row.size, row.log_start) == (expected, 0, partition.log_start)


async def test_records_that_are_deleted_while_the_disk_is_read_are_not_picked(
    tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_cold = PartitionLog.read_cold_pieces

    async def too_slow(self: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> list[Piece]:
        found = await read_cold(self, offset, max_bytes, end_offset)
        self.advance_log_start(20)
        return found

    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await feed(log, times=200)
        assert partition.drop_chunk()
        monkeypatch.setattr(PartitionLog, "read_cold_pieces", too_slow)
        with pytest.raises(OffsetOutOfRange):
            await fetch.read_records(partition, 0, max_bytes=1000, max_records=10)


async def test_what_memory_does_not_hold_comes_from_the_disk_beside_what_it_does(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path, partitions=2) as log:
        for _ in range(40):
            await log.append(batch_of(b"x" * 1000), 0)
        await feed(log, 1)
        cold, hot = log.partitions
        assert cold.drop_chunk()
        found = read(fetch, spec(cold), spec(hot))
        assert not found.is_done
        await found
        rows = found.result()
        assert next(iterate_batches(b"".join(map(bytes_of, rows[0].slices))))[0].base_offset == 0
        assert rows[1].size == SIZE
        for limit in (0, 1, 500):
            (row,) = await read(fetch, spec(cold), max_bytes=limit)
            assert len(list(iterate_batches(b"".join(map(bytes_of, row.slices))))) == 1, limit
        await fetch.stop()


async def test_disk_that_fails_is_the_error_of_its_partition(
    tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> list[Piece]:
        raise StorageFailed("bad sector")

    async with opened(tmp_path, partitions=2) as log:
        await feed(log, 0, times=40)
        await feed(log, 1)
        cold, hot = log.partitions
        assert cold.drop_chunk()
        monkeypatch.setattr(PartitionLog, "read_cold_pieces", failing)
        rows = await read(fetch, spec(cold), spec(hot))
        assert [type(row.error) for row in rows] == [StorageFailed, type(None)]
        assert rows[1].size == SIZE


@pytest.mark.parametrize("wait_ms", [0, LONG])
async def test_a_read_leaves_nothing_to_the_garbage_collector(tmp_path: Path, fetch: Fetch, wait_ms: int) -> None:
    """Circles of objects are found by stopping the loop: sixty for each record once made it stop for 8 ms, three times a second."""
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await feed(log)
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                waiting = read(fetch, spec(partition, number + (wait_ms > 0)), wait_ms=wait_ms)
                waiting.then(lambda done: None)
                await feed(log)
                assert waiting.is_done
                del waiting
            assert not {Deferred, PartitionRead} & left_to_the_collector()
        finally:
            gc.enable()


# Single records


async def test_records_are_picked_out_of_batches(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for start in (0, 3, 6):
            await log.append(batch_of(*[b"%d" % (start + index) for index in range(3)]))

        async def values(offset: int, max_records: int, max_bytes: int = 1 << 20) -> list[bytes | None]:
            found = await fetch.read_records(partition, offset, max_bytes=max_bytes, max_records=max_records)
            return [record.value for record in found.records]

        assert await values(0, 100) == [b"%d" % number for number in range(9)]
        assert await values(4, 3) == [b"4", b"5", b"6"]
        assert await values(4, 100, 1) == [b"4", b"5"]
        assert await values(9, 100) == await values(50, 100) == []
        assert await values(0, 0) == []
        partition.advance_log_start(2)
        with pytest.raises(OffsetOutOfRange):
            fetch.read_records(partition, 1, max_bytes=100, max_records=1)
        assert fetch.records_total == 14


async def test_records_before_a_batch_that_cannot_be_read_are_given(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        broken = batch_of(b"seemingly", b"compressed")
        broken[22] |= 3
        struct.pack_into(">I", broken, 17, crc32c(memoryview(broken)[21:]))
        for batch in (batch_of(b"sound"), broken, batch_of(b"behind")):
            await log.append(batch)

        async def values(offset: int) -> list[bytes | None]:
            found = await fetch.read_records(partition, offset, max_bytes=1 << 20, max_records=100)
            return [record.value for record in found.records]

        assert await values(0) == [b"sound"]
        with pytest.raises(CorruptBatch):
            await values(1)
        assert await values(3) == [b"behind"]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_batches_without_records_are_passed_whatever_follows_them(
    tmp_path: Path, fetch: Fetch, is_cold: bool
) -> None:
    """Marker, an empty batch that spans 2^28 offsets, then a batch larger than what is read at once."""
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"first"))
        partition.append_control(_marker(), now_ms=NOW_MS)
        partition.append_control(_empty_batch(1 << 28), now_ms=NOW_MS)
        await log.append(batch_of(b"x" * 100_000))
        end = 2 + (1 << 28)
        if is_cold:
            await feed(log, times=60)
            assert partition.drop_chunk()
        for offset in (1, 2, 3, end - 1):
            found = await fetch.read_records(partition, offset, max_bytes=64 * 1024, max_records=1)
            assert [(record.offset, len(record.value or b"")) for record in found.records] == [(end, 100_000)], offset
            assert found.next_offset == end + 1
        found = await fetch.read_records(partition, 0, max_bytes=1000, max_records=1)
        assert ([record.value for record in found.records], found.next_offset) == ([b"first"], 1)


async def test_a_reader_is_told_how_far_it_got_when_there_are_no_records(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"first"))
        for _ in range(200):
            partition.append_control(_marker(), now_ms=NOW_MS)
        await log.store.wal.drain()
        found = await fetch.read_records(partition, 0, max_bytes=1 << 20, max_records=100)
        assert ([record.value for record in found.records], found.next_offset) == ([b"first"], 201)
        assert (await fetch.read_records(partition, 1, max_bytes=1 << 20, max_records=100)).next_offset == 201
        found = await fetch.read_records(partition, 1, max_bytes=1, max_records=100)
        assert (found.records, found.next_offset) == ([], 66), "one read that was at once, and then a bounded number"
        await log.append(batch_of(b"last"))
        found = await fetch.read_records(partition, 190, max_bytes=1, max_records=100)
        assert ([record.value for record in found.records], found.next_offset) == ([b"last"], 202)


async def test_replicas_may_see_what_is_not_acknowledged(tmp_path: Path, fetch: Fetch) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        partition.append(batch_of(b"x"), now_ms=NOW_MS)
        below: list[ReadEnd] = [ReadEnd.HIGH_WATERMARK, ReadEnd.LOG_END]
        found = [await fetch.read_records(partition, 0, max_bytes=1000, max_records=9, below=each) for each in below]
        assert [(len(each.records), each.next_offset) for each in found] == [(0, 0), (1, 1)]


async def test_cold_partitions_that_fit_are_read_together(
    tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    gate = asyncio.Event()

    async def gated(partition: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> list[Piece]:
        under_way.append(partition.index)
        await gate.wait()
        return [batch_of(b"x" * 100)]

    async with opened(tmp_path, partitions=3) as log:
        for index in range(3):
            await feed(log, index, times=40)
            assert log.partitions[index].drop_chunk()
        monkeypatch.setattr(PartitionLog, "read_cold_pieces", gated)
        found = read(fetch, *(spec(each, max_bytes=SIZE) for each in log.partitions), max_bytes=2 * SIZE)
        await turn_of_the_loop(3)
        assert under_way == [0, 1]
        gate.set()
        await found
        # The first two took all there was to give: the third waits for the next request.
        assert counts(found) == [1, 1, 0]
