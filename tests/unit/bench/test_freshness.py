"""How W9 turns looks at a table into waits and staleness."""

import pytest

from headrace.bench.errors import LoadFailed
from headrace.bench.workloads.freshness import Acknowledged, Watch


@pytest.fixture
def acknowledged() -> Acknowledged:
    """Two partitions, a record a second in each, from the moments 100 and 200 on."""
    found = Acknowledged(2)
    found.times[0].extend([100.0, 101.0, 102.0])
    found.times[1].extend([200.0, 201.0])
    return found


def test_a_record_waits_until_the_first_look_that_shows_it(
    acknowledged: Acknowledged, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(acknowledged)
    watch.see([2, 0], 105.0)
    watch.see([3, 2], 206.0)
    assert watch.waits_of(0.0, 1000.0) == [5.0, 4.0, 104.0, 6.0, 5.0]
    assert watch.waits_of(100.5, 102.0) == [4.0]


def test_what_is_not_visible_yet_counts_with_its_wait_so_far(
    acknowledged: Acknowledged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.bench.workloads.freshness.time.monotonic", lambda: 300.0)
    watch = Watch(acknowledged)
    watch.see([3, 1], 201.5)
    assert watch.waits_of(200.5, 300.0) == [99.0]
    with pytest.raises(LoadFailed):
        watch.waits_of(250.0, 300.0)


def test_coverage_ahead_of_the_acknowledgement_waits_for_it(acknowledged: Acknowledged) -> None:
    watch = Watch(acknowledged)
    watch.see([5, 2], 202.0)
    acknowledged.times[0].extend([203.0, 204.0])
    watch.see([5, 2], 205.0)
    assert watch.waits_of(203.0, 205.0) == [2.0, 1.0]


def test_staleness_ends_with_the_last_look_that_found_some(acknowledged: Acknowledged) -> None:
    watch = Watch(acknowledged)
    watch.see([0, 2], 109.0)
    watch.see([0, 2], 111.0)
    watch.see([1, 2], 115.0)
    watch.see([3, 2], 120.0)
    assert watch.stale_until(105.0) == 115.0
    assert watch.stale_until(116.0) == 116.0
