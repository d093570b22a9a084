"""The checks above, with one rule broken at a time: each mutant must be caught by the check that guards its rule."""

from pathlib import Path

import pytest
from tests.support.disk_image import missing_for_mounts
from tests.support.scenarios import (
    mutant,
    survive_failed_flush,
    survive_fence,
    survive_flipped_bits,
    survive_kills,
    survive_power_cuts,
)

pytestmark = pytest.mark.slow
CAUGHT = "broken promises"
KILLS_MAX, CUTS_MAX = 60, 20
"""One or two are enough, mostly; the check ends with the first that is."""


@pytest.mark.parametrize("name", ["ack-before-write", "early-high-watermark", "forgotten-producers", "reused-offsets"])
def test_the_kill_check_catches(tmp_path: Path, kafka_address: str, seed: int, name: str) -> None:
    with pytest.raises(AssertionError, match=CAUGHT):
        survive_kills(tmp_path / "data", kafka_address, seed, kills=KILLS_MAX, program=mutant(name), acks=(50, 200))


@pytest.mark.skipif(missing_for_mounts() is not None, reason=missing_for_mounts() or "")
def test_the_power_cut_check_catches_a_missing_flush(tmp_path: Path, kafka_address: str, seed: int) -> None:
    """kill -9 would not: the page cache survives it."""
    with pytest.raises(AssertionError, match=CAUGHT):
        survive_power_cuts(tmp_path, kafka_address, seed, cuts=CUTS_MAX, program=mutant("no-flush"))


def test_the_fence_check_catches_an_owner_that_does_not_look(tmp_path: Path, kafka_address: str, seed: int) -> None:
    with pytest.raises(AssertionError, match=CAUGHT):
        survive_fence(tmp_path, kafka_address, seed, program=mutant("no-fence"))


def test_the_rot_check_catches_a_recovery_that_believes_everything(
    tmp_path: Path, kafka_address: str, seed: int
) -> None:
    with pytest.raises(AssertionError, match=f"{CAUGHT}|WAL goes back"):
        survive_flipped_bits(tmp_path, kafka_address, seed, flips=20, program=mutant("unchecked-recovery"))


def test_the_failed_flush_check_catches_a_node_that_goes_on(tmp_path: Path, kafka_address: str, seed: int) -> None:
    with pytest.raises(AssertionError, match=CAUGHT):
        survive_failed_flush(tmp_path, kafka_address, seed, program=mutant("retry-after-failure"))
