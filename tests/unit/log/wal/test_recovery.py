"""What the ring gives back after a crash: everything acknowledged, nothing torn, and rot said aloud."""

import os
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, RING_BYTES, batch_of, opened, read_values

from headrace.errors import Corrupted, Invalid
from headrace.log.wal.file import RingFile
from headrace.log.wal.format import BLOCK_SIZE, DATA_START, GROUP_HEADER_SIZE, decode_group_header, ring_seed
from headrace.log.wal.recovery import RingReader


def ring(directory: Path) -> Path:
    return directory / "wal" / "ring"


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def group_places(directory: Path) -> list[int]:
    """Where the ring's groups begin in the file, idle and end marks included."""
    file = RingFile(ring(directory), capacity=RING_BYTES)
    reader = RingReader(file)
    list(reader.entries())
    places = [file.place(lsn) for lsn in reader.group_starts]
    reader.close()
    file.close()
    return places


@pytest.mark.requirement("R3.40", "R4.64", "X0.1")
async def test_everything_acknowledged_is_there_after_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=3, is_clean=False) as log:
        for number in range(30):
            await log.append(batch_of(b"record %d" % number), partition=number % 3)
    async with opened(tmp_path, partitions=3) as log:
        for index in range(3):
            assert await read_values(log.partitions[index]) == [b"record %d" % n for n in range(index, 30, 3)]
            assert log.partitions[index].high_watermark == 10


async def test_offsets_go_on_where_they_were(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"a", b"b", b"c"))
    async with opened(tmp_path, leader_epoch=1) as log:
        assert (await log.append(batch_of(b"d"))).base_offset == 3


@pytest.mark.requirement("X0.1")
async def test_a_torn_last_group_is_cut_off_at_every_block(tmp_path: Path) -> None:
    """A write that was under way when the power went: any prefix of it may be on disk."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"kept"))
        await log.append(batch_of(os.urandom(3 * BLOCK_SIZE)))
    whole = ring(tmp_path).read_bytes()
    last = group_places(tmp_path)[1]
    for blocks_written in range(4):
        torn = bytearray(whole)
        start = last + blocks_written * BLOCK_SIZE
        torn[start:] = bytes(len(torn) - start)
        ring(tmp_path).write_bytes(torn)
        async with opened(tmp_path, is_clean=False) as log:
            assert await read_values(log.partitions[0]) == [b"kept"]
            assert not log.store.recovery.quarantined
            assert log.partitions[0].end_offset == 1


async def test_what_follows_a_torn_group_is_readable_after_the_next_crash(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"kept"))
        await log.append(batch_of(b"torn away"))
    flip(ring(tmp_path), group_places(tmp_path)[1] + GROUP_HEADER_SIZE + 30)
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"second life"))
    async with opened(tmp_path) as log:
        assert await read_values(log.partitions[0]) == [b"kept", b"second life"]


@pytest.mark.requirement("X0.1")
@pytest.mark.parametrize("inside", [0, 20, GROUP_HEADER_SIZE + 4, GROUP_HEADER_SIZE + 70])
async def test_rot_below_a_durable_point_is_quarantined_and_the_rest_served(tmp_path: Path, inside: int) -> None:
    """Header, payload or table of a middle group: the group behind it vouches that it was durable."""
    async with opened(tmp_path, is_clean=False) as log:
        for value in (b"first", b"rotten", b"last"):
            await log.append(batch_of(value))
    flip(ring(tmp_path), group_places(tmp_path)[1] + inside)
    async with opened(tmp_path) as log:
        assert await read_values(log.partitions[0]) == [b"first", b"last"]
        assert len(log.store.recovery.quarantined) == 1
        assert log.partitions[0].end_offset == 3


async def test_only_the_damaged_batch_of_a_group_is_lost(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=2, is_clean=False) as log:
        log.partitions[0].append(batch_of(b"rotten"), now_ms=NOW_MS)
        await log.append(batch_of(b"good"), partition=1)
        await log.append(batch_of(b"later"), partition=1)
    flip(ring(tmp_path), group_places(tmp_path)[0] + GROUP_HEADER_SIZE + 65)
    async with opened(tmp_path, partitions=2) as log:
        assert await read_values(log.partitions[1]) == [b"good", b"later"]
        (damage,) = log.store.recovery.quarantined
        assert [(entry.partition, entry.base_offset) for entry in damage.entries] == [(0, 0)]


async def test_a_clean_stop_vouches_for_the_last_group(tmp_path: Path) -> None:
    """With the end mark behind it, damage to the last group is rot, not a torn write."""
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"first"))
        await log.append(batch_of(b"rotten"))
    flip(ring(tmp_path), group_places(tmp_path)[1] + GROUP_HEADER_SIZE + 65)
    async with opened(tmp_path) as log:
        assert len(log.store.recovery.quarantined) == 1
        assert await read_values(log.partitions[0]) == [b"first"]


async def test_an_idle_log_vouches_for_its_last_group(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"first"))
        await log.append(batch_of(b"rotten"))
        log.store.wal._attest()
        await log.store.wal.drain()
    flip(ring(tmp_path), group_places(tmp_path)[1] + GROUP_HEADER_SIZE + 65)
    async with opened(tmp_path) as log:
        assert len(log.store.recovery.quarantined) == 1


async def test_a_payload_cannot_pass_for_a_group(tmp_path: Path) -> None:
    """Records that carry a stolen group header, block aligned, are not found when recovery looks for groups."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"x"))
    stolen = ring(tmp_path).read_bytes()[DATA_START : DATA_START + GROUP_HEADER_SIZE]
    other = tmp_path / "other"
    async with opened(other, is_clean=False) as log:
        blocks = (stolen + bytes(BLOCK_SIZE - GROUP_HEADER_SIZE)) * 3
        padding = -(GROUP_HEADER_SIZE + batch_of(bytes(BLOCK_SIZE) + blocks).index(stolen)) % BLOCK_SIZE
        await log.append(batch_of(bytes(BLOCK_SIZE + padding) + blocks))
    data = ring(other).read_bytes()
    seed = ring_seed(RingFile(ring(other), capacity=RING_BYTES).superblock.ring_id)
    assert any(data[place : place + 4] == b"HRWG" for place in range(DATA_START + BLOCK_SIZE, len(data), BLOCK_SIZE))
    headers = [
        decode_group_header(data[p : p + GROUP_HEADER_SIZE], seed) for p in range(DATA_START, len(data), BLOCK_SIZE)
    ]
    assert sum(header is not None for header in headers) == 1


@pytest.mark.requirement("R3.35", "R3.38")
async def test_the_ring_goes_round_many_times_and_lsns_never_reset(tmp_path: Path) -> None:
    value = os.urandom(100_000)
    async with opened(tmp_path, is_clean=False) as log:
        for number in range(60):
            await log.append(batch_of(value))
            log.partitions[0].mark_uploaded(number + 1)
            await log.store.trim()
        assert log.store.wal.durable_lsn > 5 * RING_BYTES
        end = log.store.wal.durable_lsn
        await log.append(batch_of(b"tail"))
    async with opened(tmp_path, uploaded_ends=[60]) as log:
        assert log.partitions[0].end_offset == 61
        assert await read_values(log.partitions[0], 60) == [b"tail"]
        assert log.store.wal.durable_lsn > end
        assert not log.store.recovery.quarantined


async def test_groups_of_an_earlier_lap_do_not_come_back(tmp_path: Path) -> None:
    async with opened(tmp_path, is_clean=False) as log:
        for number in range(40):
            await log.append(batch_of(b"%d" % number * 40_000))
            log.partitions[0].mark_uploaded(number)
            await log.store.trim()
    async with opened(tmp_path, uploaded_ends=[39]) as log:
        assert await read_values(log.partitions[0], 39) == [b"39" * 40_000]
        assert log.partitions[0].end_offset == 40
        assert not log.store.recovery.quarantined


async def test_what_lies_above_a_seal_does_not_count(tmp_path: Path) -> None:
    """Another broker took over and committed the end it read; our later writes were never acknowledged."""
    async with opened(tmp_path, is_clean=False) as log:
        await log.append(batch_of(b"below"))
        sealed = log.store.wal.durable_lsn
        await log.append(batch_of(b"above"))
    file = RingFile(ring(tmp_path), capacity=RING_BYTES)
    file.write_superblock(file.superblock._replace(sealed_lsn=sealed))
    file.close()
    async with opened(tmp_path, is_clean=False) as log:
        assert await read_values(log.partitions[0]) == [b"below"]


async def test_entries_of_a_deleted_topic_are_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=2, is_clean=False) as log:
        await log.append(batch_of(b"gone"), partition=1)
        await log.append(batch_of(b"here"), partition=0)
    async with opened(tmp_path, partitions=1) as log:
        assert await read_values(log.partitions[0]) == [b"here"]


async def test_a_torn_superblock_leaves_the_other_copy_in_force(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append(batch_of(b"a"))
        log.partitions[0].mark_uploaded(1)
        await log.store.trim()
        newest = log.store.file.superblock.sequence % 2
    flip(ring(tmp_path), newest * BLOCK_SIZE + 40)
    async with opened(tmp_path, uploaded_ends=[1]) as log:
        assert log.partitions[0].end_offset == 1


async def test_a_file_that_is_no_ring_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    ring(tmp_path).write_bytes(b"something else" * 1000)
    with pytest.raises(Corrupted, match="no readable superblock"):
        RingFile(ring(tmp_path), capacity=RING_BYTES)


async def test_a_changed_capacity_is_refused_with_both_sizes(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with pytest.raises(Invalid, match=r"wal\.capacity\.bytes"):
        RingFile(ring(tmp_path), capacity=RING_BYTES * 2)
