"""The corners of the ring: a full one, a picture taken in mid-group, rot at the very end, leftovers of torn writes."""

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, RING_BYTES, batch_of, opened, read_values, turn_of_the_loop
from tests.unit.log.wal.test_recovery import flip, group_places, ring
from tests.unit.log.wal.test_writer import Gate

from headrace.disk import OsFile
from headrace.errors import Corrupted, NotReady, Overloaded, StorageFailed, StorageFull
from headrace.log.wal.file import RingFile
from headrace.log.wal.format import BLOCK_SIZE, GROUP_HEADER_SIZE

pytestmark = pytest.mark.usefixtures("each_flusher")

CEILING = 1 << 40
"""Of every partition that `opened` makes."""


async def test_a_checkpoint_in_mid_group_does_not_cover_what_joins_the_group_later(tmp_path: Path) -> None:
    """The producer that came later would be forgotten by the next start, and its repeated batch taken twice."""
    later = batch_of(b"later", producer_id=8, producer_epoch=0, base_sequence=0)
    async with opened(tmp_path, is_clean=False) as log:
        gate = Gate(log.store.wal)
        partition = log.partitions[0]
        partition.append(batch_of(b"in flight"), now_ms=NOW_MS)
        await turn_of_the_loop()
        partition.append(batch_of(b"first", producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
        checkpoint = asyncio.ensure_future(log.store.checkpoint())
        await turn_of_the_loop()
        partition.append(later, now_ms=NOW_MS)
        gate.open()
        await checkpoint
    async with opened(tmp_path) as log:
        again = log.partitions[0].append(later, now_ms=NOW_MS)
        assert (again.is_duplicate, again.base_offset) == (True, 2)


@pytest.mark.requirement("R3.39")
async def test_who_appends_without_asking_for_room_is_refused_not_served_over_others(tmp_path: Path) -> None:
    value = os.urandom(20_000)
    async with opened(tmp_path) as log:
        count = 0
        with contextlib.suppress(Overloaded):
            while True:
                await log.append(batch_of(value))
                count += 1
        assert count * len(value) > RING_BYTES // 2
        log.store.wal._attest()  # An idle mark must not overwrite anything either.
        await log.store.wal.drain()
    for _ in range(4):  # Each clean stop would like to write a mark of its own.
        async with opened(tmp_path) as log:
            assert await read_values(log.partitions[0]) == [value] * count
            assert not log.store.recovery.quarantined


async def test_a_closing_log_takes_nothing_more(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        partition = log.partitions[0]
        partition.append(batch_of(b"in time"), now_ms=NOW_MS)
        stopping = asyncio.ensure_future(log.store.wal.stop())
        await turn_of_the_loop()
        with pytest.raises(NotReady):
            partition.append(batch_of(b"too late"), now_ms=NOW_MS)
        await stopping


def test_a_ring_that_a_full_disk_has_no_room_for_is_said_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OsFile, "write_whole", full)
    with pytest.raises(StorageFull, match="could not open the WAL"):
        RingFile(tmp_path / "ring", capacity=RING_BYTES)
    monkeypatch.undo()
    RingFile(tmp_path / "ring", capacity=RING_BYTES).close()


@pytest.mark.requirement("X0.1")
@pytest.mark.parametrize("inside", [0, GROUP_HEADER_SIZE + 4])
async def test_offsets_lost_to_rot_are_never_given_out_again(tmp_path: Path, inside: int) -> None:
    """The last batch of a partition rots: who read it must not find another record at its offset."""
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"kept"))
        await log.append(batch_of(b"read by somebody, then rotten"))
    (tmp_path / "wal" / "checkpoint").unlink()  # It would tell where offsets go on.
    flip(ring(tmp_path), group_places(tmp_path)[1] + inside)
    async with opened(tmp_path, leader_epoch=1) as log:
        assert log.store.recovery.quarantined
        partition = log.partitions[0]
        partition.ceiling += 1000
        assert (await log.append(batch_of(b"new"))).base_offset == CEILING
        assert await read_values(partition) == [b"kept", b"new"]


async def test_offsets_go_on_without_a_jump_where_a_later_batch_tells(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        for value in (b"first", b"rotten", b"last"):
            await log.append(batch_of(value))
    flip(ring(tmp_path), group_places(tmp_path)[1])
    async with opened(tmp_path) as log:
        assert log.store.recovery.quarantined
        assert (await log.append(batch_of(b"new"))).base_offset == 3


async def test_a_torn_group_at_the_start_of_the_ring_is_no_rot_in_the_next_life(tmp_path: Path) -> None:
    """It was torn; the log then went on at the ring's end instead, and nothing is missing."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(os.urandom(300_000)))
        await log.append(batch_of(os.urandom(300_000)))
        await log.append(batch_of(os.urandom(300_000)))
        log.partitions[0].mark_uploaded(2)
        assert await log.store.trim()
        await log.append(batch_of(os.urandom(200_000)))  # Skips to the start of the ring.
        torn_at = log.store.file.place(log.store.wal._group_starts[-1])
    flip(ring(tmp_path), torn_at + 50_000)
    async with opened(tmp_path, uploaded_ends=[2], is_clean=False) as log:
        assert not log.store.recovery.quarantined
        assert (await log.append(batch_of(b"small"))).base_offset == 3
        assert log.store.file.place(log.store.wal._group_starts[-1]) > torn_at
    async with opened(tmp_path, uploaded_ends=[2]) as log:
        assert not log.store.recovery.quarantined
        assert (await read_values(log.partitions[0], 3)) == [b"small"]


async def test_what_a_killed_process_left_unflushed_is_flushed_before_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may sit in the page cache only: read now, and lost with the power a second later."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"written"))
    order: list[str] = []
    monkeypatch.setattr(RingFile, "sync", lambda _: order.append("sync"))
    monkeypatch.setattr("headrace.log.recovery.replay", lambda *_, **__: order.append("replay"))
    async with opened(tmp_path, is_clean=False):
        assert order == ["sync", "replay"]


def test_a_disk_that_takes_only_a_part_has_only_that_part_zeroed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RingFile(tmp_path / "ring", capacity=RING_BYTES)
    before = file.zeroed_end
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, place: real(fd, [bytes(pieces[0][:BLOCK_SIZE])], place))
    monkeypatch.setattr(file, "_zeroer", file._file)  # Unaligned memory does not go through O_DIRECT.
    file.zero_until(before + 1)
    assert file.zeroed_end == before + BLOCK_SIZE
    monkeypatch.undo()
    file.close()


@pytest.mark.requirement("X0.1")
@pytest.mark.parametrize("inside", [0, 7, 8, 11, 12, 15, 16, 17, 21, 40, 65])
async def test_any_flipped_byte_of_a_batch_is_noticed(tmp_path: Path, inside: int) -> None:
    """Also where its CRC does not reach: base offset, length, leader epoch, magic."""
    async with opened(tmp_path, is_clean=False) as log:
        for value in (b"first", b"rotten", b"last"):
            await log.append(batch_of(value))
    place = group_places(tmp_path)[1] + GROUP_HEADER_SIZE + inside
    async with opened(tmp_path, is_clean=False) as log:  # While the node runs, and has nothing in memory.
        flip(ring(tmp_path), place)
        if not 12 <= inside < 16:  # A leader epoch is not worth an index of its own; the next start sees it.
            with pytest.raises(StorageFailed):
                await log.partitions[0].read_cold(1, 1, 3)
    async with opened(tmp_path, is_clean=False) as log:
        assert await read_values(log.partitions[0]) == [b"first", b"last"]
        assert len(log.store.recovery.quarantined) == 1


async def test_a_damaged_checkpoint_is_done_without_while_the_ring_has_everything(tmp_path: Path) -> None:
    batch = batch_of(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
    async with opened(tmp_path) as log:
        await log.append(batch)
    flip(tmp_path / "wal" / "checkpoint", 20)
    async with opened(tmp_path) as log:
        assert log.partitions[0].append(batch, now_ms=NOW_MS).is_duplicate


async def test_a_damaged_checkpoint_is_named_when_the_ring_has_moved_on(tmp_path: Path) -> None:
    """Producers and transactions would be forgotten in silence otherwise."""
    async with opened(tmp_path) as log:
        for value in (b"a", b"b"):
            await log.append(batch_of(value))
        log.partitions[0].mark_uploaded(2)
        assert await log.store.trim()
    flip(tmp_path / "wal" / "checkpoint", 20)
    with pytest.raises(Corrupted, match=r"wal/checkpoint.*remove it to go on"):
        async with opened(tmp_path):
            pass


async def test_a_stop_without_space_for_a_checkpoint_is_a_stop_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageFull("no space left on device")

    async with opened(tmp_path) as log:
        await log.append(batch_of(b"kept"))
        monkeypatch.setattr("headrace.log.store.write_checkpoint", full)
    monkeypatch.undo()
    async with opened(tmp_path) as log:
        assert log.store.recovery.head.was_clean
        assert await read_values(log.partitions[0]) == [b"kept"]
