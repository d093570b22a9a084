"""The simulated disk: what it keeps, what it may lose; and what the log makes of that where a seed would seldom hit."""

import random
from pathlib import Path

import pytest
from tests.simulation.cluster import RING
from tests.simulation.disk import Died, SimulatedDisk

from headrace.disk import replace_file
from headrace.log.wal.file import CAPACITY_MIN, RingFile

FILE = Path("/simulated/file")
SEEDS = 50


def test_a_power_cut_takes_only_what_was_not_flushed() -> None:
    found = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk(random.Random(seed))
        file = disk.open(FILE)
        file.write(0, b"kept")
        file.sync()
        disk.sync_directory(FILE.parent)
        file.write(0, b"lost")
        disk.lose_power()
        found.add(disk.open_to_read(FILE).read(0, 4))
    assert found == {b"kept", b"lost"}


def test_a_name_that_was_not_flushed_may_be_lost() -> None:
    found = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk(random.Random(seed))
        disk.open(FILE).sync()
        disk.lose_power()
        found.add(disk.exists(FILE))
    assert found == {True, False}


def test_a_file_is_replaced_by_the_whole_new_one_or_not_at_all() -> None:
    """Wherever the process or the power ends."""
    old, new = b"old" * 1000, b"new" * 1000
    found = set()
    for seed in range(SEEDS * 4):
        disk = SimulatedDisk(random.Random(seed))
        replace_file(disk, FILE, [old])
        disk.interrupt(lambda disk=disk: replace_file(disk, FILE, [new]))  # type: ignore[misc]
        disk.lose_power()
        file = disk.open_to_read(FILE)
        found.add(file.read(0, file.size()))
    assert found == {old, new}


def test_a_crash_while_a_ring_is_made_leaves_one_that_opens_or_none() -> None:
    """Half of its superblocks would look like a ring that was damaged, and no start would touch it again."""
    for seed in range(SEEDS * 4):
        disk = SimulatedDisk(random.Random(seed))
        disk.interrupt(lambda disk=disk: RingFile(RING, capacity=CAPACITY_MIN, disk=disk))  # type: ignore[misc]
        disk.lose_power()
        RingFile(RING, capacity=CAPACITY_MIN, disk=disk).close()


def test_an_interrupted_job_ends_between_two_steps_or_in_the_middle_of_a_write() -> None:
    sizes = set()
    for seed in range(SEEDS):
        disk = SimulatedDisk(random.Random(seed))
        disk.open(FILE)
        disk._steps_left = 0
        with pytest.raises(Died):
            disk.open(FILE).write(0, bytes(2048))
        sizes.add(disk.open_to_read(FILE).size())
    assert {0, 512, 1024, 1536} <= sizes
