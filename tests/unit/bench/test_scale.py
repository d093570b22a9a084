"""A scale changed by hand does not pass for the one it came from."""

from headrace.bench.scale import CUSTOM, FULL, QUICK, adjust


def test_an_adjusted_scale_has_a_name_of_its_own() -> None:
    adjusted = adjust(FULL, rounds=7, seconds=3.0)
    assert adjusted.name == CUSTOM
    assert (adjusted.rounds, adjusted.latency_rounds, adjusted.fresh_rounds) == (7, 7, 7)
    assert (adjusted.window_seconds, adjusted.request_seconds, adjusted.partition_seconds) == (3.0, 3.0, 3.0)


def test_without_changes_a_scale_stays_as_it_is() -> None:
    assert adjust(QUICK, rounds=None, seconds=None) is QUICK
