"""kill -9 under load, over and over: nothing acknowledged or read is lost, moved, changed or doubled."""

from pathlib import Path

import pytest
from tests.support.disk_image import loop_device, missing_for_mounts
from tests.support.scenarios import LAPS, SMALL_RING, survive_kills

KILLS = 8
KILLS_LONG = 200
KILLS_OF_DEVICE = 3
KILLS_PER_DIRECTORY = 40
"""Then a new directory: the ring of one is small, and first starts deserve their kills too."""


@pytest.mark.requirement("R3.37", "R3.40", "R3.119", "R4.64", "X0.1")
def test_nothing_promised_is_lost_by_kill_nine(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_kills(tmp_path / "data", kafka_address, seed, kills=KILLS)


@pytest.mark.slow
@pytest.mark.requirement("R3.38", "R3.39", "R3.40")
def test_nothing_is_lost_when_a_small_ring_goes_round_and_round(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_kills(tmp_path / "data", kafka_address, seed, kills=8, ring_bytes=SMALL_RING, acks=LAPS)


@pytest.mark.slow
@pytest.mark.skipif(missing_for_mounts() is not None, reason=missing_for_mounts() or "")
@pytest.mark.requirement("R3.33", "R3.37", "R3.99")
def test_nothing_is_lost_when_the_ring_is_a_block_device(tmp_path: Path, kafka_address: str, seed: int) -> None:
    with loop_device(tmp_path / "image", SMALL_RING) as device:
        survive_kills(
            tmp_path / "data",
            kafka_address,
            seed,
            kills=KILLS_OF_DEVICE,
            ring_bytes=SMALL_RING,
            acks=LAPS,
            settings={"wal.path": device},
        )
        assert (tmp_path / "data" / "wal-device").is_dir()
        assert not (tmp_path / "data" / "wal").exists()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.requirement("R3.37", "R3.40", "R3.119", "R4.64")
def test_nothing_promised_is_lost_by_two_hundred_kills(tmp_path: Path, kafka_address: str, seed: int) -> None:
    for number in range(KILLS_LONG // KILLS_PER_DIRECTORY):
        survive_kills(tmp_path / f"data{number}", kafka_address, seed + number, kills=KILLS_PER_DIRECTORY)
