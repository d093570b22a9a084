"""A broker that takes over its neighbour's WAL is killed, or its machine loses power, at every single step of it."""

from collections.abc import Sequence

import pytest
from tests.simulation.shared_mutants import SHARED_MUTANTS
from tests.simulation.takeover_steps import interrupted

SEED = 1
STEPS = 48
"""More than a takeover has. How many it has changes with whatever draws from the seed's dice."""
PER_TEST = 12
UPLOADED_MS = 300
"""So often that most of a WAL is in object storage when it is taken over, and only its end is copied."""


@pytest.mark.timeout(600)
def test_a_takeover_has_the_steps_that_are_tried() -> None:
    result, taken = interrupted(SEED, last=None)
    assert not result.violations, str(result)
    assert STEPS // 3 < taken <= STEPS


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("first", range(1, STEPS + 1, PER_TEST))
def test_a_takeover_that_ends_at_any_step_is_finished_by_somebody(first: int, is_power_cut: bool) -> None:
    for last in range(first, first + PER_TEST):
        result, taken = interrupted(SEED, last=last, is_power_cut=is_power_cut)
        assert not result.violations, f"ended at step {last}: {result}"
        if taken < last:
            break  # It has no more.


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, STEPS + 1, PER_TEST))
def test_so_is_one_of_a_wal_that_is_mostly_uploaded(first: int) -> None:
    for last in range(first, first + PER_TEST):
        result, taken = interrupted(SEED, last=last, upload_ms=UPLOADED_MS)
        assert not result.violations, f"ended at step {last}: {result}"
        if taken < last:
            break


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "is_power_cut", "upload_ms", "steps"),
    [
        ("led-before-it-is-durable", True, 60_000, range(1, STEPS)),
        ("copied-and-not-told", False, UPLOADED_MS, range(STEPS, 0, -1)),
        ("wal-taken-over-is-read-again", False, 60_000, [None]),
    ],
)
def test_a_broken_rule_of_takeovers_is_noticed(
    mutant: str, is_power_cut: bool, upload_ms: int, steps: Sequence[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a broker that dies at one of the steps, or by the owner that comes back."""
    SHARED_MUTANTS[mutant](monkeypatch)
    assert any(
        interrupted(SEED, last=last, is_power_cut=is_power_cut, upload_ms=upload_ms)[0].violations for last in steps
    )
