"""How long modules rest after failures."""

from headrace.transforms.resting import Resting

LONG_MS = 1000


def test_one_failure_between_batches_that_went_well_costs_nothing() -> None:
    resting = Resting(LONG_MS)
    for now_ms in range(0, 100, 10):
        assert resting.failed("m", 5, now_ms) == 0
        assert resting.left_ms("m", now_ms) == 0
        resting.worked("m")


def test_who_fails_again_rests_three_times_as_long_as_it_ran() -> None:
    resting = Resting(LONG_MS)
    resting.failed("m", 5, 100)
    assert resting.failed("m", 5, 110) == 15
    assert resting.left_ms("m", 110) == 15
    assert resting.left_ms("m", 124) == 1
    assert resting.left_ms("m", 125) == 0
    assert resting.failed("m", 4, 125) == 12


def test_a_failure_too_short_to_be_measured_counts_as_a_millisecond() -> None:
    resting = Resting(LONG_MS)
    resting.failed("m", 0, 100)
    assert resting.failed("m", 0, 100) == 3


def test_batches_that_fail_beside_each_other_add_up_within_a_bound() -> None:
    resting = Resting(LONG_MS)
    for _ in range(5):
        resting.failed("m", 2, 100)
    assert resting.left_ms("m", 100) == 4 * 6
    for _ in range(5):
        resting.failed("m", 900, 100)
    assert resting.left_ms("m", 100) == 10_000


def test_who_was_stopped_for_taking_too_long_rests_at_once() -> None:
    resting = Resting(LONG_MS)
    assert resting.failed("m", LONG_MS, 100) == 3 * LONG_MS
    assert resting.left_ms("m", 100) == 3 * LONG_MS


def test_success_ends_it_and_modules_do_not_rest_for_each_other() -> None:
    resting = Resting(LONG_MS)
    resting.failed("m", 900, 100)
    resting.failed("m", 900, 100)
    assert resting.left_ms("other", 100) == 0
    resting.worked("m")
    assert resting.left_ms("m", 100) == 0
