"""What the ring lets go of because it was spilled is still there: for readers, for uploads, after any crash."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, RING_BYTES, Opened, batch_of, opened, read_values

from headrace.errors import StorageFull
from headrace.log.exposure import unuploaded_between
from headrace.log.spill.files import SpillFile, SpillFiles
from headrace.log.spill.spiller import Spiller

BOUND = 64 * 1024 * 1024
VALUES = [b"%04d" % number + os.urandom(20_000) for number in range(30)]


@contextlib.asynccontextmanager
async def filled(directory: Path, *, bytes_max: int = BOUND) -> AsyncIterator[tuple[Opened, Spiller]]:
    """Some 600 KiB in a ring of 1 MiB, all of it in partition 0 but for one record; ends as by a crash."""
    async with opened(directory, partitions=2, is_clean=False, wal_spill_bytes=bytes_max) as log:
        for value in VALUES:
            await log.append(batch_of(value, producer_id=7, producer_epoch=0, base_sequence=VALUES.index(value)))
        await log.append(batch_of(b"other"), partition=1)
        yield log, Spiller(log.store)


def forget_memory(log: Opened) -> None:
    """Reads have to go to the disk."""
    for partition in log.partitions:
        while partition.drop_chunk():
            pass


def spill_files(directory: Path) -> list[Path]:
    return sorted((directory / "wal").glob("spill-*"))


async def test_the_ring_goes_on_and_the_records_are_still_read(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        room = log.store.wal.room_bytes
        assert not await log.store.trim()
        assert await spiller.spill(log.store.wal.durable_lsn)
        assert await log.store.trim()
        assert log.store.wal.room_bytes > room + 500_000
        for value in VALUES[:20]:
            await log.append(batch_of(value))
    async with opened(tmp_path, partitions=2) as log:
        assert len(log.store.spill) == 1
        assert await read_values(log.partitions[0]) == [*VALUES, *VALUES[:20]]
        assert await read_values(log.partitions[1]) == [b"other"]
        assert log.partitions[0].unuploaded_bytes > 50 * 20_000


async def test_a_read_across_the_border_gets_what_the_spill_has_first(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        middle = unuploaded_between(log.partitions[0], 0, 1 << 60)[15].lsn
        assert await spiller.spill(middle)
        assert await log.store.trim()
    async with opened(tmp_path, partitions=2) as log:
        assert await read_values(log.partitions[0]) == VALUES
        page = await log.partitions[0].read_for_upload(3, 1 << 30, len(VALUES))
        assert page.end_offset <= 15
        assert len(page.stretches) == page.end_offset - 3


async def test_only_what_is_not_uploaded_is_copied(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        log.partitions[0].mark_uploaded(28)
        assert await spiller.spill(log.store.wal.durable_lsn)
        assert 2 * 20_000 < spiller.spilled_bytes_total < 3 * 20_000


async def test_a_stretch_with_nothing_in_need_is_passed_over_without_a_file(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        log.partitions[0].mark_uploaded(len(VALUES))
        log.partitions[1].mark_uploaded(1)
        assert await spiller.spill(log.store.wal.durable_lsn)
        assert not spill_files(tmp_path)


async def test_a_file_goes_when_its_last_record_is_uploaded_or_deleted(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        await spiller.spill(log.store.wal.durable_lsn)
        await log.store.trim()
        log.partitions[0].mark_uploaded(29)
        await spiller.release()
        assert len(spill_files(tmp_path)) == 1
        log.partitions[0].mark_uploaded(30)
        await spiller.release()
        assert len(spill_files(tmp_path)) == 1
        log.store.remove(log.partitions[1])
        await spiller.release()
        assert not spill_files(tmp_path)
        assert log.store.spill.used_bytes == 0


async def test_producers_are_known_after_a_restart_from_the_spill(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        await spiller.spill(log.store.wal.durable_lsn)
        await log.store.trim()
    async with opened(tmp_path, partitions=2) as log:
        last = batch_of(VALUES[-1], producer_id=7, producer_epoch=0, base_sequence=len(VALUES) - 1)
        again = log.partitions[0].append(last, now_ms=NOW_MS)
        assert (again.is_duplicate, again.base_offset) == (True, len(VALUES) - 1)


@pytest.mark.parametrize("step", ["half a file", "before the rename", "before the trim"])
async def test_a_crash_at_any_step_loses_and_doubles_nothing(tmp_path: Path, step: str) -> None:
    async with filled(tmp_path) as (log, spiller):
        await spiller.spill(log.store.wal.durable_lsn)
        (path,) = spill_files(tmp_path)
        if step == "half a file":
            path.rename(path.with_suffix(".new"))
            os.truncate(path.with_suffix(".new"), 100_000)
        elif step == "before the rename":
            path.rename(path.with_suffix(".new"))
    async with opened(tmp_path, partitions=2, is_clean=False) as log:
        assert await read_values(log.partitions[0]) == VALUES
        assert len(spill_files(tmp_path)) == (step == "before the trim")
        # A copy that outlived the crash is as good as a new one.
        spiller = Spiller(log.store)
        await spiller.spill(log.store.wal.durable_lsn)
        assert await log.store.trim()
        forget_memory(log)
        assert await read_values(log.partitions[0]) == VALUES
    async with opened(tmp_path, partitions=2) as log:
        assert await read_values(log.partitions[0]) == VALUES


async def test_a_damaged_batch_is_said_aloud_and_the_rest_served(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        await spiller.spill(log.store.wal.durable_lsn)
        await log.store.trim()
    (path,) = spill_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(VALUES[3])] ^= 1
    path.write_bytes(data)
    async with opened(tmp_path, partitions=2) as log:
        assert await read_values(log.partitions[0]) == [*VALUES[:3], *VALUES[4:]]
        (damage,) = log.store.recovery.quarantined
        assert [(entry.partition, entry.base_offset) for entry in damage.entries] == [(0, 3)]
        assert "damaged" in damage.reason


async def test_a_file_that_cannot_be_read_is_set_aside_and_its_offsets_are_not_given_out_again(tmp_path: Path) -> None:
    async with filled(tmp_path) as (log, spiller):
        await spiller.spill(log.store.wal.durable_lsn)
        await log.store.trim()
    (path,) = spill_files(tmp_path)
    os.truncate(path, 20)
    async with opened(tmp_path, partitions=2) as log:
        assert log.store.recovery.quarantined
        assert [each.suffix for each in spill_files(tmp_path)] == [".damaged"]
        assert (await log.append(batch_of(b"new"))).base_offset == len(VALUES)


async def test_the_bound_holds(tmp_path: Path) -> None:
    async with filled(tmp_path, bytes_max=100_000) as (log, spiller):
        assert not await spiller.spill(log.store.wal.durable_lsn)
        assert not spill_files(tmp_path)
        assert not await log.store.trim()


async def test_a_disk_without_room_leaves_everything_in_the_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> SpillFile:
        raise StorageFull("no space left")

    async with filled(tmp_path) as (log, spiller):
        monkeypatch.setattr(SpillFiles, "write", full)
        assert not await spiller.spill(log.store.wal.durable_lsn)
        assert not await log.store.trim()
        assert not log.faults
        assert await read_values(log.partitions[0]) == VALUES


async def test_round_and_round_the_spill_keeps_the_oldest(tmp_path: Path) -> None:
    """Several laps, several files, one file's borders in the middle of a group."""
    count = 0
    async with opened(tmp_path, is_clean=False, wal_spill_bytes=BOUND) as log:
        spiller = Spiller(log.store)
        while count < 4 * RING_BYTES // 20_000:
            if not log.store.wal.has_room(100_000):
                assert await spiller.spill(log.store.wal.trim_lsn + 300_001)
                assert await log.store.trim()
            await log.append(batch_of(b"%08d" % count + bytes(20_000)))
            count += 1
        assert len(log.store.spill) > 3
        forget_memory(log)
        values = await read_values(log.partitions[0])
    assert [int((value or b"")[:8]) for value in values] == list(range(count))
    async with opened(tmp_path) as log:
        assert await read_values(log.partitions[0]) == values


async def test_addresses_that_the_ring_gives_out_again_are_forgotten(tmp_path: Path) -> None:
    """The ring's end rotted: what is written there next must not pass for what was spilled from there."""
    async with filled(tmp_path) as (log, spiller):
        lsns = [stored.lsn for stored in unuploaded_between(log.partitions[0], 0, 1 << 60)]
        await spiller.spill(log.store.wal.durable_lsn)
        spill = log.store.spill
        spill.cut(lsns[10])
        assert spill.end_lsn == lsns[10]
        assert spill.find(lsns[9], 1) is not None
        assert spill.find(lsns[10], 1) is None
        spill.cut(0)
        assert [path.suffix for path in spill_files(tmp_path)] == [".lost"], "set aside, for whoever wants its batches"
        assert not len(spill)
