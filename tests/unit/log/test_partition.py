"""One partition over a real ring: offsets, tail reads at every offset and size, waiting, letting go, recovering."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.logs import NOW_MS, TOPIC_ID, Opened, batch_of, opened, read_all, read_values, turn_of_the_loop

from headrace.errors import (
    HeadraceError,
    InvalidRecords,
    InvalidTimestamp,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    TooLarge,
)
from headrace.log.exposure import first_unuploaded_lsn
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability, TopicPolicy
from headrace.log.remote import NoRemoteSegments, TimedOffset
from headrace.log.tail import StoredBatch
from headrace.records.batch import Buffer, Piece, iterate_batches, read_header
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord, read_records

MIB = 1024 * 1024
OBJECT = TopicPolicy(durability=Durability.OBJECT)


class Settled:
    """A waiter that remembers how it ended."""

    def __init__(self) -> None:
        self.outcomes: list[HeadraceError | None] = []

    def settle(self, error: HeadraceError | None) -> None:
        self.outcomes.append(error)


class Woken:
    def __init__(self) -> None:
        self.count = 0

    def wake(self, partition: PartitionLog) -> None:
        self.count += 1


def tail_of(partition: PartitionLog, offset: int, max_bytes: int = 1 << 20, *, at_least_one: bool = True) -> bytes:
    found = partition.read_tail(offset, max_bytes, partition.high_watermark, at_least_one=at_least_one)
    assert found.size == sum(map(len, found.slices))
    return b"".join(found.slices)


# Appending


@pytest.mark.requirement("R4.57", "R3.49")
async def test_offsets_are_given_in_the_order_of_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        places = [partition.append(batch_of(*[b"x"] * count), now_ms=NOW_MS) for count in (1, 3, 2)]
        assert [(each.base_offset, each.end_offset) for each in places] == [(0, 1), (1, 4), (4, 6)]
        assert (partition.end_offset, partition.high_watermark) == (6, 0)
        await log.store.wal.drain()
        assert (partition.durable_end, partition.high_watermark, partition.last_stable_offset) == (6, 6, 6)


@pytest.mark.parametrize(
    ("policy", "batch", "error"),
    [
        (TopicPolicy(message_bytes_max=80), batch_of(b"x" * 100), TooLarge),
        (TopicPolicy(), batch_of(b"x") + batch_of(b"y"), InvalidRecords),
        (TopicPolicy(is_compacted=True), batch_of(b"no key"), InvalidRecords),
        (
            TopicPolicy(timestamp_before_ms=10),
            build_batch([NewRecord(value=b"x")], now_ms=NOW_MS - 11),
            InvalidTimestamp,
        ),
        (TopicPolicy(), build_batch([NewRecord(value=b"x")], now_ms=NOW_MS + 3_600_001), InvalidTimestamp),
    ],
)
async def test_refused_batch_leaves_no_trace(
    tmp_path: Path, policy: TopicPolicy, batch: bytearray, error: type[HeadraceError]
) -> None:
    async with opened(tmp_path, policy=policy) as log:
        (partition,) = log.partitions
        with pytest.raises(error):
            partition.append(batch, now_ms=NOW_MS)
        assert (partition.end_offset, partition.tail_bytes, partition.unuploaded_bytes) == (0, 0, 0)
        assert partition.epoch_starts == []


@pytest.mark.trap(25)
async def test_duplicate_gets_the_place_of_its_original(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        first = batch_of(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
        await log.append(first)
        again = partition.append(first, now_ms=NOW_MS)
        assert (again.base_offset, again.end_offset, again.is_duplicate) == (0, 2, True)
        assert partition.end_offset == 2
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch_of(b"c", producer_id=1, producer_epoch=0, base_sequence=5), now_ms=NOW_MS)


async def test_no_offset_is_given_above_the_ceiling(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        partition.ceiling = 3
        await log.append(batch_of(b"1", b"2", b"3"))
        with pytest.raises(Overloaded):
            partition.append(batch_of(b"4"), now_ms=NOW_MS)
        assert partition.end_offset == 3
        partition.ceiling = 100
        assert (await log.append(batch_of(b"4"))).base_offset == 3


async def test_ceiling_is_asked_for_in_good_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        wanted: list[PartitionLog] = []
        log.store.raise_ceiling = wanted.append
        log.store.ceiling_margin = 10
        partition.ceiling = 12
        await log.append(batch_of(b"1", b"2"))
        assert wanted == []
        await log.append(batch_of(b"3"))
        assert wanted == [partition]


@pytest.mark.trap(18)
async def test_append_time_replaces_the_clients(tmp_path: Path) -> None:
    async with opened(tmp_path, policy=TopicPolicy(uses_append_time=True, timestamp_before_ms=10)) as log:
        (partition,) = log.partitions
        # However far off the client's clock is.
        for theirs in (1, NOW_MS + 10**12):
            appended = await log.append(build_batch([NewRecord(value=b"x", timestamp_ms=theirs)], now_ms=0))
            assert appended.append_time_ms == NOW_MS
        assert [record.timestamp_ms for record in await read_all(partition)] == [NOW_MS, NOW_MS]
        # Markers of transactions carry that sign, too, as Kafka's do.
        marker = build_marker(is_commit=True, producer_id=9, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS - 5)
        partition.append_control(marker, now_ms=NOW_MS)
        kept = read_header(partition.read_tail(2, 1 << 20, 3, at_least_one=True).slices[0])
        assert (kept.is_log_append_time, kept.max_timestamp_ms) == (True, NOW_MS)


# Reading the tail


@pytest.mark.requirement("R3.52", "R4.42")
@pytest.mark.trap(10, 11)
@given(sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3000)), min_size=1, max_size=12), data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_tail_is_read_at_every_offset_and_size(
    tmp_path: Path, sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Over several chunks, against the list of batches: whole batches, from the one that holds the offset on."""
    async with opened(Path(tempfile.mkdtemp(dir=tmp_path))) as log:
        (partition,) = log.partitions
        ends = []
        for count, size in sizes:
            ends.append((await log.append(batch_of(*[b"v" * size] * count))).end_offset)
        whole = tail_of(partition, 0)
        batches = [(header, bytes(view)) for header, view in iterate_batches(whole)]
        assert [header.end_offset for header, _ in batches] == ends
        for offset in range(ends[-1]):
            rest = [view for header, view in batches if header.end_offset > offset]
            limit = data.draw(st.integers(0, len(whole) + 10))
            fitting, total = [], 0
            for view in rest:
                total += len(view)
                if total > limit:
                    break
                fitting.append(view)
            assert tail_of(partition, offset, limit, at_least_one=False) == b"".join(fitting)
            assert tail_of(partition, offset, limit) == b"".join(fitting or rest[:1])
            assert partition.readable_bytes(offset, ends[-1]) == sum(map(len, rest))
        assert tail_of(partition, ends[-1]) == b""


async def test_nothing_is_read_at_or_above_the_end_it_is_given(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for _ in range(4):
            await log.append(batch_of(b"1", b"2", b"3"))
        for end in range(13):
            found = partition.read_tail(0, 1 << 20, end, at_least_one=True)
            read = [header.end_offset for view in found.slices for header, _ in iterate_batches(view)]
            assert read == [each for each in (3, 6, 9, 12) if each <= end]


@pytest.mark.requirement("R3.52")
async def test_what_a_reader_holds_stays_while_the_tail_moves_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"held" * 500))
        held = partition.read_tail(0, 1 << 20, 1, at_least_one=True).slices
        before = b"".join(held)
        for _ in range(30):
            await log.append(batch_of(b"other" * 3000))
        partition.mark_uploaded(31)
        while partition.drop_chunk():
            pass
        for _ in range(10):
            await log.append(batch_of(b"newer" * 3000))
        assert b"".join(held) == before
        assert log.store.memory.pinned_bytes > 0


@pytest.mark.parametrize("offset", [-1, 3, 100])
async def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path, offset: int) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"1", b"2"))
        partition.check_offset(0)
        partition.check_offset(2)
        with pytest.raises(OffsetOutOfRange):
            partition.check_offset(offset)


async def test_chunks_that_memory_gave_up_are_read_from_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        values = [b"%04d" % number * 300 for number in range(40)]
        for value in values:
            await log.append(batch_of(value))
        assert partition.drop_chunk()
        assert not partition.is_hot(0)
        assert partition.readable_bytes(0, 40) > 40 * 1200
        assert await read_values(partition) == values
        small = await partition.read_cold(0, 1, 40)
        assert [header.base_offset for header, _ in iterate_batches(b"".join(small))] == [0]


class UploadedMeanwhile(NoRemoteSegments):
    """Object storage that takes everything and lets the WAL go round just when somebody looks for it."""

    def __init__(self, log: Opened) -> None:
        self._log = log
        self.batches: list[Buffer] = []

    async def upload(self) -> None:
        (partition,) = self._log.partitions
        stored = await partition.read_for_upload(partition.uploaded_end, 1 << 20, partition.durable_end)
        self.batches += [bytes(batch) for stretch in stored.stretches for _, batch in iterate_batches(stretch)]
        partition.mark_uploaded(partition.durable_end)
        assert await self._log.store.trim()

    async def read(
        self, topic_id: bytes, partition: int, *, offset: int, end_offset: int, max_bytes: int
    ) -> list[Piece]:
        return [each for each in self.batches if offset < read_header(each).end_offset <= end_offset]

    async def find_time(self, topic_id: bytes, partition: int, timestamp_ms: int) -> TimedOffset | None:
        records = [record for batch in self.batches for record in read_records(batch)]
        if self._log.partitions[0].uploaded_end < self._log.partitions[0].end_offset:
            await self.upload()
        return next((TimedOffset(each.offset, each.timestamp_ms) for each in records), None)

    async def newest(self, topic_id: bytes, partition: int) -> TimedOffset | None:
        return await self.find_time(topic_id, partition, 0)


@pytest.fixture
async def moving(tmp_path: Path) -> AsyncIterator[tuple[PartitionLog, UploadedMeanwhile]]:
    """Forty records that are in the WAL alone, and who will take them."""
    async with opened(tmp_path) as log:
        remote = log.store.remote = UploadedMeanwhile(log)
        for number in range(40):
            await log.append(batch_of(b"%04d" % number * 300))
        (partition,) = log.partitions
        while partition.drop_chunk():
            pass
        yield partition, remote


async def test_what_leaves_the_wal_while_it_is_read_is_read_from_object_storage(
    moving: tuple[PartitionLog, UploadedMeanwhile], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, remote = moving
    read_wal = partition._store.read_wal

    async def upload_and_read(wanted: list[StoredBatch]) -> list[Buffer]:
        if partition.uploaded_end == 0:
            monkeypatch.undo()
            await remote.upload()
        return await read_wal(wanted)

    monkeypatch.setattr(partition._store, "read_wal", upload_and_read)
    found = await partition.read_cold(0, 1 << 20, partition.high_watermark)
    assert [header.base_offset for each in found for header, _ in iterate_batches(each)][:2] == [0, 1]


async def test_what_is_uploaded_while_object_storage_is_read_is_not_passed_over(
    moving: tuple[PartitionLog, UploadedMeanwhile], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, remote = moving
    partition.uploaded_end = 1  # An offset that was passed over: there is nothing of it in the bucket.

    async def nothing_yet(topic_id: bytes, index: int, *, offset: int, end_offset: int, max_bytes: int) -> list[Buffer]:
        monkeypatch.undo()
        await remote.upload()
        return []

    monkeypatch.setattr(remote, "read", nothing_yet)
    found = await partition.read_cold(0, 1 << 20, partition.high_watermark)
    assert read_header(found[0]).base_offset == 1


@pytest.mark.parametrize("wanted", ["by time", "newest"])
async def test_a_search_sees_what_is_uploaded_while_it_looks_into_object_storage(
    moving: tuple[PartitionLog, UploadedMeanwhile], wanted: str
) -> None:
    partition, remote = moving
    partition.uploaded_end = 1
    found = await (partition.find_time(NOW_MS) if wanted == "by time" else partition.newest_record())
    assert remote.batches
    assert found == (1, NOW_MS)


async def test_what_is_not_durable_stays_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for _ in range(4):
            partition.append(batch_of(b"x" * 3000), now_ms=NOW_MS)
        assert not partition.drop_chunk()
        await log.store.wal.drain()
        assert partition.drop_chunk()
        assert not partition.drop_chunk(is_uploaded_only=True)


# Waiting


async def test_waiter_is_settled_when_the_disk_has_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        waiter = Settled()
        end = partition.append(batch_of(b"x"), now_ms=NOW_MS).end_offset
        assert partition.wait(end, waiter)
        assert waiter.outcomes == []
        await log.store.wal.drain()
        assert waiter.outcomes == [None]
        assert not partition.wait(end, waiter)


@pytest.mark.requirement("R3.50")
async def test_object_durability_waits_for_the_upload(tmp_path: Path) -> None:
    async with opened(tmp_path, policy=OBJECT) as log:
        (partition,) = log.partitions
        wanted: list[PartitionLog] = []
        log.store.upload_wanted = wanted.append
        waiters = [Settled(), Settled()]
        for waiter in waiters:
            end = partition.append(batch_of(b"x"), now_ms=NOW_MS).end_offset
            assert partition.wait(end, waiter)
        await log.store.wal.drain()
        assert (partition.durable_end, partition.high_watermark) == (2, 0)
        assert [waiter.outcomes for waiter in waiters] == [[], []]
        assert wanted
        partition.mark_uploaded(1)
        assert [waiter.outcomes for waiter in waiters] == [[None], []]
        assert partition.high_watermark == 1
        partition.apply_policy(TopicPolicy())
        assert [waiter.outcomes for waiter in waiters] == [[None], [None]]


async def test_what_is_acknowledged_is_readable_though_more_is_demanded_meanwhile(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        before, after = Settled(), Settled()
        assert partition.wait(partition.append(batch_of(b"x"), now_ms=NOW_MS).end_offset, before)
        partition.apply_policy(OBJECT)
        assert partition.wait(partition.append(batch_of(b"y"), now_ms=NOW_MS).end_offset, after)
        await log.store.wal.drain()
        assert (before.outcomes, after.outcomes) == ([None], [])
        assert (partition.durable_end, partition.high_watermark) == (2, 1)
        partition.mark_uploaded(2)
        assert after.outcomes == [None]
        assert partition.high_watermark == 2


async def test_parked_reader_is_woken_once_by_the_flush(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        woken, gone = Woken(), Woken()
        partition.park(woken)
        partition.park(gone)
        partition.unpark(gone)
        partition.append(batch_of(b"x"), now_ms=NOW_MS)
        assert woken.count == 0
        await log.store.wal.drain()
        await log.append(batch_of(b"y"))
        assert (woken.count, gone.count) == (1, 0)


@pytest.mark.trap(8)
async def test_removed_partition_wakes_everybody_and_takes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, policy=OBJECT) as log:
        (partition,) = log.partitions
        waiter, woken = Settled(), Woken()
        partition.wait(partition.append(batch_of(b"x"), now_ms=NOW_MS).end_offset, waiter)
        partition.park(woken)
        log.store.remove(partition)
        assert [type(each) for each in waiter.outcomes] == [NotLeader]
        assert woken.count == 1
        with pytest.raises(NotLeader):
            partition.append(batch_of(b"x"), now_ms=NOW_MS)
        await turn_of_the_loop(3)
        await log.store.wal.drain()


# Letting go


@pytest.mark.requirement("R3.1")
async def test_deleted_records_are_gone_and_the_index_with_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for number in range(30):
            await log.append(batch_of(b"%04d" % number * 300))
        partition.advance_log_start(20)
        assert (partition.log_start, partition.end_offset) == (20, 30)
        with pytest.raises(OffsetOutOfRange):
            partition.check_offset(19)
        assert [record.offset for record in await read_all(partition, 20)] == list(range(20, 30))
        assert first_unuploaded_lsn(partition) == partition.tail.index.lsns[partition.tail.index.find(20)]
        partition.advance_log_start(10)
        assert partition.log_start == 20


@pytest.mark.parametrize("partitions", [1, 3])
async def test_the_tail_stays_within_its_budget_however_much_is_written(tmp_path: Path, partitions: int) -> None:
    """Also while every chunk that is taken makes a place for itself by dropping an older one."""
    budget = 8 * MIB
    async with opened(
        tmp_path, partitions=partitions, wal_capacity_bytes=128 * MIB, cache_write_size_bytes=budget
    ) as log:
        for number in range(80):
            await log.append(batch_of(bytes(900_000)), number % partitions)
            assert log.store.memory.used_bytes <= budget + 2 * MIB, number


async def test_index_keeps_a_row_while_disk_or_memory_needs_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for _ in range(30):
            await log.append(batch_of(b"x" * 2000))
        assert len(partition.tail.index) == 30
        partition.mark_uploaded(25)
        # Memory still serves the front.
        assert len(partition.tail.index) == 30
        while partition.drop_chunk(is_uploaded_only=True):
            pass
        first_hot = partition.tail.index.offsets[0]
        assert 0 < first_hot <= 25
        assert partition.is_hot(first_hot)
        assert not partition.is_hot(first_hot - 1)
        assert partition.local_start == first_hot
        assert partition.unuploaded_bytes == 5 * len(batch_of(b"x" * 2000))


# Times


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 12))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_times_are_found_as_by_looking_at_every_record(
    tmp_path: Path, batches: list[list[int]], log_start: int
) -> None:
    async with opened(Path(tempfile.mkdtemp(dir=tmp_path))) as log:
        (partition,) = log.partitions
        for times in batches:
            await log.append(build_batch([NewRecord(value=b"x", timestamp_ms=each) for each in times], now_ms=0))
        log_start = min(log_start, partition.end_offset)
        partition.advance_log_start(log_start)
        kept = [*enumerate(each for times in batches for each in times)][log_start:]
        for wanted in range(-1, 32):
            assert await partition.find_time(wanted) == next((row for row in kept if row[1] >= wanted), None)
        newest = await partition.newest_record()
        assert (newest[1] if newest else None) == max((time for _, time in kept), default=None)
        assert newest is None or newest in kept


# Epochs


@pytest.mark.trap(15, 16)
async def test_epochs_end_where_the_next_begins(tmp_path: Path) -> None:
    async with opened(tmp_path, leader_epoch=2) as log:
        (partition,) = log.partitions
        assert partition.end_of_epoch(2) == (2, 0)
        await log.append(batch_of(b"1", b"2", b"3"))
        partition.leader_epoch = 5
        assert partition.end_of_epoch(5) == (5, 3)
        assert partition.end_of_epoch(2) == (2, 3)
        await log.append(batch_of(b"4"))
        for epoch, expected in ((2, (2, 3)), (3, (2, 3)), (4, (2, 3)), (5, (5, 4)), (1, (1, 0))):
            assert partition.end_of_epoch(epoch) == expected, epoch
        assert partition.end_of_epoch(6) is None
        assert read_header(tail_of(partition, 3)).leader_epoch == 5


@pytest.mark.trap(15)
async def test_epoch_at_an_offset_is_that_of_its_record_also_in_later_lives(tmp_path: Path) -> None:
    async with opened(tmp_path, leader_epoch=2) as log:
        (partition,) = log.partitions
        assert partition.epoch_at(0) == 2
        await log.append(batch_of(b"0", b"1", b"2"))
    async with opened(tmp_path, leader_epoch=5) as log:
        (partition,) = log.partitions
        assert [partition.epoch_at(offset) for offset in (0, 2, 3)] == [2, 2, 5]
        await log.append(batch_of(b"3"))
        assert [partition.epoch_at(offset) for offset in (0, 2, 3, 4)] == [2, 2, 5, 5]
        del partition.epoch_starts[0]
        assert partition.epoch_at(2) == -1


# Recovery


@pytest.mark.requirement("R4.64", "R3.40")
@pytest.mark.trap(25, 28)
@pytest.mark.parametrize("is_clean", [True, False])
async def test_everything_the_partition_knew_is_known_again(tmp_path: Path, is_clean: bool) -> None:
    async with opened(tmp_path, is_clean=is_clean, leader_epoch=1) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"plain"))
        for sequence in range(6):
            batch = build_batch(
                [NewRecord(value=b"%d" % sequence)],
                now_ms=NOW_MS,
                producer_id=9,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            await log.append(batch)
        marker = build_marker(is_commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=0, now_ms=NOW_MS)
        partition.append_control(marker, now_ms=NOW_MS)
        await log.append(batch_of(b"last"))
        values, aborted = await read_values(partition), partition.aborted_between(0, 100)
    async with opened(tmp_path, leader_epoch=2) as log:
        (partition,) = log.partitions
        assert (partition.end_offset, partition.high_watermark, partition.last_stable_offset) == (9, 9, 9)
        assert await read_values(partition) == values
        assert partition.aborted_between(0, 100) == aborted
        assert [(each.producer_id, each.first_offset) for each in aborted] == [(9, 1)]
        assert partition.end_of_epoch(1) == (1, 9)
        again = batch_of(b"4", producer_id=9, producer_epoch=0, base_sequence=4)
        assert partition.append(again, now_ms=NOW_MS).base_offset == 5
        assert partition.topic_id == TOPIC_ID
        assert (await log.append(batch_of(b"more"))).base_offset == 9


@pytest.mark.requirement("R3.11")
async def test_readers_get_the_stored_bytes_themselves(tmp_path: Path) -> None:
    """No copy between the arena and the socket: what is read are views of the memory that the batch lies in."""
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        await log.append(batch_of(b"as it lies"))
        (view,) = partition.read_tail(0, 1024, partition.high_watermark, at_least_one=True).slices
        assert view.obj is partition.tail._chunks[0].memory


async def test_offsets_of_a_later_transaction_are_no_marker_of_a_former_coordinator(tmp_path: Path) -> None:
    """They come from a coordinator too, and what is in them is no coordinator's epoch."""
    offsets = build_batch(
        [NewRecord(key=b"group", value=b"\0\4" + bytes(20)), NewRecord(key=b"other", value=None)],
        now_ms=NOW_MS,
        producer_id=9,
        producer_epoch=0,
        is_transactional=True,
    )
    async with opened(tmp_path) as log:
        (partition,) = log.partitions
        for _ in range(2):
            partition.append_control(offsets, now_ms=NOW_MS)
            marker = build_marker(is_commit=True, producer_id=9, producer_epoch=0, coordinator_epoch=7, now_ms=NOW_MS)
            partition.append_control(marker, now_ms=NOW_MS)
        assert partition.end_offset == 6
