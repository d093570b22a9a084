import math
from pathlib import Path

import pytest

from headrace.errors import Corrupted
from headrace.telemetry.history import History, Series


class Numbers:
    counted = 0.0
    level = 0.0


def history_of(numbers: Numbers, kept: int = 100) -> History:
    return History(
        [
            Series(name="sent", sentence="Sent", kind="counter", unit="bytes", read=lambda: numbers.counted),
            Series(name="held", sentence="Held", kind="gauge", unit="bytes", read=lambda: numbers.level),
        ],
        kept=kept,
    )


def test_counters_are_shown_as_rates_and_levels_as_they_are() -> None:
    numbers = Numbers()
    history = history_of(numbers)
    for step, counted in enumerate((0, 100, 100, 400)):
        numbers.counted, numbers.level = counted, step
        history.sample(step * 10_000)
    sent = history.points("sent", since_ms=0, points_max=100)
    assert (sent.times_ms, sent.values) == ([10_000, 20_000, 30_000], [10.0, 0.0, 30.0])
    assert history.points("held", since_ms=20_000, points_max=100).values == [2.0, 3.0]


def test_many_points_are_averaged_into_few() -> None:
    numbers = Numbers()
    history = history_of(numbers, kept=1000)
    for step in range(100):
        numbers.level = step % 2
        history.sample(step * 10)
    points = history.points("held", since_ms=0, points_max=10)
    assert points.values == [0.5] * 10
    assert points.times_ms[-1] == 990


def test_a_restart_or_a_clock_set_back_shows_no_negative_rate() -> None:
    numbers = Numbers()
    history = history_of(numbers)
    for time, counted in ((0, 500), (10_000, 900), (20_000, 100)):
        numbers.counted = counted
        history.sample(time)
    assert history.points("sent", since_ms=0, points_max=9).values == [40.0, 10.0]
    history.sample(5_000)
    assert history.points("held", since_ms=0, points_max=9).times_ms == [5_000]


def test_only_a_bounded_number_of_samples_is_kept_and_nothing_infinite_is_shown() -> None:
    numbers = Numbers()
    history = history_of(numbers, kept=100)
    for step in range(1000):
        numbers.level = math.inf if step == 999 else step
        history.sample(step)
    points = history.points("held", since_ms=0, points_max=1000)
    assert 100 <= len(points.times_ms) < 111
    assert points.values[-1] is None


def test_a_time_without_samples_is_shown_as_one() -> None:
    numbers = Numbers()
    history = history_of(numbers)
    for time in (0, 10_000, 500_000, 510_000):
        numbers.counted += 100
        history.sample(time)
    assert history.points("held", since_ms=0, points_max=9).values == [0.0, 0.0, None, 0.0, 0.0]


def test_what_is_kept_is_the_same_after_a_restart_also_with_other_series() -> None:
    numbers = Numbers()
    history = history_of(numbers)
    for time in (0, 10_000, 20_000):
        numbers.counted += 100
        numbers.level = time
        history.sample(time)
    again = history_of(Numbers())
    again.load(history.dump())
    for name in ("sent", "held"):
        assert again.points(name, since_ms=0, points_max=9) == history.points(name, since_ms=0, points_max=9)
    other = History([Series(name="new", sentence="New", kind="gauge", unit="count", read=lambda: 1.0)])
    other.load(history.dump())
    assert other.points("new", since_ms=0, points_max=9).values == [None, None, None]


def test_a_file_that_is_damaged_or_cut_is_refused_whole() -> None:
    history = history_of(Numbers())
    history.sample(10)
    data = history.dump()
    for cut in range(len(data)):
        with pytest.raises(Corrupted):
            history_of(Numbers()).load(data[:cut])
    for place in range(len(data)):
        spoiled = bytearray(data)
        spoiled[place] ^= 1
        with pytest.raises(Corrupted):
            history_of(Numbers()).load(bytes(spoiled))


def test_the_first_version_stays_readable() -> None:
    golden = Path(__file__).resolve().parents[2] / "golden" / "history" / "v1.bin"
    history = history_of(Numbers())
    history.load(golden.read_bytes())
    assert history.points("held", since_ms=0, points_max=9).values == [1.0, 2.0, 3.0]
