"""A ring on a block device. Loop devices need root; without it these say so and skip."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.disk_image import loop_device, missing_for_mounts
from tests.support.logs import RING_BYTES, batch_of, opened, read_values

from headrace.errors import Corrupted, Fault, Invalid, NotLeader
from headrace.log.wal import device as wal_device
from headrace.log.wal.file import RingFile
from headrace.log.wal.writer import FENCE_NAME

MIB = 1024 * 1024
DEVICE_BYTES = 4 * MIB
BTRFS_LABEL_PLACE = 64 * 1024
needs_loop_devices = pytest.mark.skipif(missing_for_mounts() is not None, reason=missing_for_mounts() or "")


@pytest.fixture(params=[512, 4096], ids=["sectors-512", "sectors-4096"])
def each_device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "image", DEVICE_BYTES, sector_size=request.param) as path:
        yield path


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "image", DEVICE_BYTES) as path:
        yield path


@needs_loop_devices
@pytest.mark.usefixtures("each_flusher")
@pytest.mark.requirement("R3.33", "R3.99")
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "cached"])
async def test_a_start_finds_everything_on_the_device(
    tmp_path: Path, each_device: Path, is_clean: bool, is_direct: bool
) -> None:
    values = [b"first", b"s" * 5000, b"l" * 200_000]
    for life in range(3):
        async with opened(tmp_path, is_clean=is_clean, wal_path=str(each_device), wal_direct=is_direct) as log:
            assert await read_values(log.partitions[0]) == values * life
            for value in values:
                await log.append(batch_of(value))


@needs_loop_devices
@pytest.mark.requirement("R3.99")
async def test_what_lies_beside_a_ring_is_in_the_data_directory(tmp_path: Path, device: Path) -> None:
    beside = tmp_path / "wal-device"
    async with opened(tmp_path, is_clean=False, wal_path=str(device)) as log:
        await log.append(batch_of(b"uploaded"))
        await log.append(batch_of(b"not yet"))
        log.partitions[0].mark_uploaded(1)
        assert await log.store.trim()
        assert [path.name for path in beside.iterdir()] == ["checkpoint"]
        assert log.store.directory == beside
    async with opened(tmp_path, is_clean=False, wal_path=str(device)) as log:
        assert log.partitions[0].uploaded_end == 1
        assert await read_values(log.partitions[0], 1) == [b"not yet"]
        (beside / FENCE_NAME).touch()
        with pytest.raises(NotLeader, match="fenced"):
            await log.append(batch_of(b"too late"))


@needs_loop_devices
async def test_the_ring_uses_no_more_of_the_device_than_its_capacity(tmp_path: Path, device: Path) -> None:
    marked = b"\xee" * (DEVICE_BYTES - RING_BYTES)
    with device.open("r+b") as file:
        file.seek(RING_BYTES)
        file.write(marked)
    async with opened(tmp_path, wal_path=str(device)) as log:
        for round_number in range(12):
            await log.append(batch_of(b"x" * 200_000))
            log.partitions[0].mark_uploaded(round_number + 1)
            await log.store.trim()
    with device.open("rb") as file:
        file.seek(RING_BYTES)
        assert file.read() == marked


@needs_loop_devices
@pytest.mark.requirement("R3.99")
@pytest.mark.parametrize("place", [0, 1024, BTRFS_LABEL_PLACE, MIB - 1])
async def test_a_device_of_somebody_else_is_refused_until_it_is_wiped_as_the_message_says(
    tmp_path: Path, device: Path, place: int
) -> None:
    with device.open("r+b") as file:
        file.seek(place)
        file.write(b"!")
    with pytest.raises(Corrupted, match="no readable superblock") as refused:
        RingFile(device, capacity=RING_BYTES)
    with device.open("rb") as file:
        assert file.read(MIB).strip(b"\0") == b"!"
    wipe(str(refused.value))
    async with opened(tmp_path, wal_path=str(device)) as log:
        await log.append(batch_of(b"ours"))


@needs_loop_devices
async def test_groups_of_an_earlier_ring_on_the_device_are_not_read(tmp_path: Path, device: Path) -> None:
    large = b"x" * (MIB // 4)
    async with opened(tmp_path, wal_path=str(device), wal_capacity_bytes=DEVICE_BYTES) as log:
        for _ in range(8):
            await log.append(batch_of(large))
    with pytest.raises(Invalid, match="a ring cannot change size") as refused:
        RingFile(device, capacity=RING_BYTES)
    wipe(str(refused.value))
    async with opened(tmp_path, wal_path=str(device), wal_capacity_bytes=DEVICE_BYTES) as log:
        assert log.store.recovery.quarantined == []
        assert await read_values(log.partitions[0]) == []
        await log.append(batch_of(large))
    async with opened(tmp_path, wal_path=str(device), wal_capacity_bytes=DEVICE_BYTES) as log:
        assert log.store.recovery.quarantined == []
        assert await read_values(log.partitions[0]) == [large]


@needs_loop_devices
@pytest.mark.requirement("R3.99")
def test_a_device_smaller_than_the_ring_is_refused_with_both_sizes(device: Path) -> None:
    with pytest.raises(Invalid, match=rf"wal\.capacity\.bytes is {DEVICE_BYTES + 4096}, .* only {DEVICE_BYTES} bytes"):
        RingFile(device, capacity=DEVICE_BYTES + 4096)
    RingFile(device, capacity=DEVICE_BYTES).close()


@needs_loop_devices
def test_a_device_of_larger_blocks_than_the_rings_is_refused(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_device, "_logical_block_size", lambda fd: 8192)
    with pytest.raises(Invalid, match="blocks of 8192 bytes"):
        RingFile(device, capacity=RING_BYTES)


@needs_loop_devices
def test_a_device_that_is_mounted_is_refused(tmp_path: Path, device: Path) -> None:
    (tmp_path / "mounted").mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
    subprocess.run(["mount", str(device), str(tmp_path / "mounted")], check=True)
    try:
        with pytest.raises(Fault, match="in use"):
            RingFile(device, capacity=RING_BYTES)
    finally:
        subprocess.run(["umount", str(tmp_path / "mounted")], check=True)


@needs_loop_devices
def test_a_device_is_one_nodes_at_a_time(device: Path) -> None:
    file = RingFile(device, capacity=RING_BYTES)
    with pytest.raises(Fault, match="the WAL of another node"):
        RingFile(device, capacity=RING_BYTES)
    ring_id = file.superblock.ring_id
    file.close()
    again = RingFile(device, capacity=RING_BYTES)
    assert again.superblock.ring_id == ring_id
    again.close()


async def test_a_device_that_is_not_there_is_no_directory_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no such block device"):
        async with opened(tmp_path, wal_path="/dev/headrace-no-such-disk"):
            pass
    assert "headrace-no-such-disk" not in os.listdir("/dev")


def wipe(message: str) -> None:
    """Do what an operator would: run the command that the message gives."""
    command = re.search("`(dd [^`]+)`", message)
    assert command is not None, message
    subprocess.run(command[1].split(), check=True, capture_output=True)
