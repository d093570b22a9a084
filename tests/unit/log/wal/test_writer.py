"""Group commit, backpressure, the fence, and what happens when the disk says no."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, RING_BYTES, batch_of, opened, read_values, turn_of_the_loop

from headrace.errors import HeadraceError, NotLeader, StorageFailed, StorageFull
from headrace.log.wal.format import Superblock
from headrace.log.wal.writer import FENCE_NAME, WalWriter

pytestmark = pytest.mark.usefixtures("each_flusher")


class Gate:
    """Stands before the flusher and lets nothing pass until opened: a test can look at what happens before a flush is done."""

    def __init__(self, wal: WalWriter, error: HeadraceError | None = None) -> None:
        self._wal = wal
        self._flusher = wal._flusher
        self._is_open = False
        self._held: list[tuple[int, memoryview]] = []
        self.error = error
        self.writes: list[int] = []
        wal._flusher = self

    def write(self, lsn: int, image: memoryview) -> None:
        self._held.append((lsn, image))
        if self._is_open:
            self.open()

    def open(self) -> None:
        self._is_open = True
        held, self._held = self._held, []
        for lsn, image in held:
            if self.error is not None:
                asyncio.get_running_loop().call_soon(self._wal._flushed, self.error)
            else:
                self.writes.append(len(image))
                self._flusher.write(lsn, image)

    async def reached(self) -> None:
        """Until a group stands before the gate."""
        while not self._held:
            await turn_of_the_loop()

    def close(self) -> None:
        assert not self._held, "nobody opened the gate"
        self._flusher.close()


class Recorder:
    def __init__(self) -> None:
        self.outcomes: list[HeadraceError | None] = []

    def settle(self, error: HeadraceError | None) -> None:
        self.outcomes.append(error)


@pytest.mark.requirement("R3.37")
async def test_nothing_is_readable_or_acknowledged_before_the_flush(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        gate = Gate(log.store.wal)
        partition = log.partitions[0]
        waiter = Recorder()
        appended = partition.append(batch_of(b"a"), now_ms=NOW_MS)
        assert partition.wait(appended.end_offset, waiter)
        await gate.reached()
        assert (partition.end_offset, partition.high_watermark) == (1, 0)
        assert waiter.outcomes == []
        gate.open()
        await log.store.wal.drain()
        assert partition.high_watermark == 1
        assert waiter.outcomes == [None]


@pytest.mark.requirement("R3.36")
async def test_what_arrives_during_a_flush_shares_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=4) as log:
        gate = Gate(log.store.wal)
        log.partitions[0].append(batch_of(b"first"), now_ms=NOW_MS)
        await gate.reached()
        for index in range(4):
            for _ in range(5):
                log.partitions[index].append(batch_of(b"later"), now_ms=NOW_MS)
        gate.open()
        await log.store.wal.drain()
        assert len(gate.writes) == 2


async def test_a_small_group_waits_while_every_turn_brings_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        gate = Gate(log.store.wal)
        gate.open()
        for _ in range(4):
            log.partitions[0].append(batch_of(b"one a turn"), now_ms=NOW_MS)
            await turn_of_the_loop()
        await log.store.wal.drain()
        assert len(gate.writes) == 1


async def test_no_group_waits_for_ever(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        gate = Gate(log.store.wal)
        turns = 0
        while not gate._held:
            log.partitions[0].append(batch_of(b"one a turn"), now_ms=NOW_MS)
            await turn_of_the_loop()
            turns += 1
        assert turns < 20
        gate.open()


async def test_an_ample_group_waits_for_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_capacity_bytes=8 * RING_BYTES) as log:
        gate = Gate(log.store.wal)
        log.partitions[0].append(batch_of(bytes(600 * 1024)), now_ms=NOW_MS)
        await turn_of_the_loop()
        assert len(gate._held) == 1
        log.partitions[0].append(batch_of(bytes(600 * 1024)), now_ms=NOW_MS)
        gate.open()
        await log.store.wal.drain()
        assert len(gate.writes) == 2


async def test_a_waiter_is_settled_once_however_many_partitions_it_waits_for(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=3) as log:
        waiter = Recorder()
        attached = [
            partition.wait(partition.append(batch_of(b"x"), now_ms=NOW_MS).end_offset, waiter)
            for partition in log.partitions
        ]
        await log.store.wal.drain()
        assert attached == [True, False, False]
        assert waiter.outcomes == [None]


async def test_a_duplicate_waits_for_its_original(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        gate = Gate(log.store.wal)
        partition = log.partitions[0]
        batch = batch_of(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
        first = partition.append(batch, now_ms=NOW_MS)
        again = partition.append(batch, now_ms=NOW_MS)
        assert again.is_duplicate
        assert again.base_offset == first.base_offset
        waiter = Recorder()
        assert partition.wait(again.end_offset, waiter)
        assert waiter.outcomes == []
        gate.open()
        await log.store.wal.drain()
        assert waiter.outcomes == [None]
        assert partition.end_offset == 1


@pytest.mark.parametrize(("error", "kind"), [(StorageFailed("EIO"), StorageFailed), (StorageFull("no"), StorageFull)])
async def test_after_a_failed_flush_waiters_fail_and_nothing_is_taken(
    tmp_path: Path, error: HeadraceError, kind: type[HeadraceError]
) -> None:
    async with opened(tmp_path) as log:
        gate = Gate(log.store.wal, error)
        partition = log.partitions[0]
        waiters = [Recorder(), Recorder()]
        partition.wait(partition.append(batch_of(b"in flight"), now_ms=NOW_MS).end_offset, waiters[0])
        await turn_of_the_loop()
        partition.wait(partition.append(batch_of(b"behind it"), now_ms=NOW_MS).end_offset, waiters[1])
        gate.open()
        while not log.faults:
            await turn_of_the_loop()
        assert log.faults == [error]
        assert [waiter.outcomes for waiter in waiters] == [[error], [error]]
        assert partition.high_watermark == 0
        gate.error = None
        with pytest.raises(kind):
            partition.append(batch_of(b"later"), now_ms=NOW_MS)


async def test_a_fenced_owner_acknowledges_nothing_more(tmp_path: Path) -> None:
    """The owner writes, flushes, then looks: whoever set the fence reads what was there before it."""
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"before"))
        (tmp_path / "wal" / FENCE_NAME).touch()
        waiter = Recorder()
        partition = log.partitions[0]
        partition.wait(partition.append(batch_of(b"after"), now_ms=NOW_MS).end_offset, waiter)
        while not log.faults:
            await turn_of_the_loop()
        assert isinstance(waiter.outcomes[0], NotLeader)
        assert partition.high_watermark == 1
        with pytest.raises(NotLeader):
            partition.append(batch_of(b"again"), now_ms=NOW_MS)


async def test_a_fenced_owner_that_comes_back_does_not_vouch_for_what_it_wrote_last(tmp_path: Path) -> None:
    """The group that found the fence is on disk, and whoever has taken over may have read the ring before it was: a producer
    that sends it again must not be told that it is there."""
    batch = batch_of(b"last", producer_id=7, producer_epoch=0, base_sequence=0)
    async with opened(tmp_path, is_clean=False) as log:
        (tmp_path / "wal" / FENCE_NAME).touch()
        with pytest.raises(NotLeader):
            await log.append(batch)
    with pytest.raises(NotLeader, match=r"fenced: another broker has taken it over.*remove .*FENCE"):
        async with opened(tmp_path):
            pass
    (tmp_path / "wal" / FENCE_NAME).unlink()
    async with opened(tmp_path) as log:
        assert log.partitions[0].append(batch, now_ms=NOW_MS).is_duplicate


@pytest.mark.requirement("R3.39")
async def test_a_full_ring_pauses_producers_and_never_overwrites(tmp_path: Path) -> None:
    value = os.urandom(30_000)
    async with opened(tmp_path, is_clean=False, wal_capacity_bytes=4 * RING_BYTES) as log:
        count = 0
        while log.store.can_take(len(value) + 100):
            await log.append(batch_of(value))
            count += 1
        assert count * len(value) > RING_BYTES
        woken: list[bool] = []
        log.store.when_room(lambda: woken.append(True))
        assert not await log.store.trim()
        assert woken == []
        log.partitions[0].mark_uploaded(count // 2)
        assert await log.store.trim()
        assert woken == [True]
        assert log.store.can_take(len(value))
    async with opened(tmp_path, wal_capacity_bytes=4 * RING_BYTES, uploaded_ends=[count // 2]) as log:
        assert await read_values(log.partitions[0], count // 2) == [value] * (count - count // 2)


@pytest.mark.requirement("R3.38")
async def test_space_is_reused_only_behind_a_durable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producer state lives in batch headers until a checkpoint has it: trimming before would forget producers."""
    order: list[str] = []
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0))
        await log.append(batch_of(b"b", producer_id=9, producer_epoch=0, base_sequence=1))
        await log.append(batch_of(b"c"))
        write_superblock = log.store.file.write_superblock

        def note_superblock(block: Superblock) -> None:
            order.append("superblock")
            write_superblock(block)

        monkeypatch.setattr("headrace.log.store.write_checkpoint", lambda *_, **__: order.append("checkpoint"))
        monkeypatch.setattr(log.store.file, "write_superblock", note_superblock)
        log.partitions[0].mark_uploaded(3)
        before = log.store.wal.trim_lsn
        assert await log.store.trim()
        assert order == ["checkpoint", "superblock"]
        assert log.store.wal.trim_lsn > before
        monkeypatch.undo()


async def test_producers_survive_a_trim_and_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0))
        await log.append(batch_of(b"b"))
        log.partitions[0].mark_uploaded(2)
        await log.store.trim()
    async with opened(tmp_path, uploaded_ends=[2]) as log:
        again = log.partitions[0].append(
            batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0), now_ms=NOW_MS
        )
        assert (again.is_duplicate, again.base_offset) == (True, 0)


async def test_a_checkpoint_does_not_show_what_is_not_durable(tmp_path: Path) -> None:
    """A picture of an append that a crash then loses would make the producer's retry look like a duplicate."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"kept", producer_id=9, producer_epoch=0, base_sequence=0))
        gate = Gate(log.store.wal)
        log.partitions[0].append(batch_of(b"lost", producer_id=9, producer_epoch=0, base_sequence=1), now_ms=NOW_MS)
        writing = asyncio.ensure_future(log.store.checkpoint())
        await turn_of_the_loop(50)
        assert not writing.done()
        assert not (tmp_path / "wal" / "checkpoint").exists()
        gate.open()
        await writing
        assert (tmp_path / "wal" / "checkpoint").exists()


@pytest.mark.requirement("R3.34")
async def test_direct_io_keeps_the_same_records(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False, wal_direct=True) as log:
        for size in (1, 5000, 100_000):
            await log.append(batch_of(b"d" * size))
    async with opened(tmp_path, wal_direct=True) as log:
        assert await read_values(log.partitions[0]) == [b"d", b"d" * 5000, b"d" * 100_000]


@pytest.mark.requirement("R3.33")
async def test_wal_path_may_name_a_file(tmp_path: Path) -> None:
    path = tmp_path / "device"
    path.touch()
    async with opened(tmp_path, is_clean=False, wal_path=str(path)) as log:
        await log.append(batch_of(b"x"))
    assert path.stat().st_size > 0


async def test_a_large_ring_is_not_zeroed_before_the_first_ack(tmp_path: Path) -> None:
    async with opened(tmp_path, wal_capacity_bytes=10 * 1024**3) as log:
        await log.append(batch_of(b"first"))
        assert log.store.file.path.stat().st_size < 256 * 1024 * 1024
