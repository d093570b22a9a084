"""Floods of events: the first of a kind are written, the rest counted, and other kinds not touched."""

from types import SimpleNamespace

import structlog

from headrace.telemetry.floods import EVENTS_MAX, PERIOD_S, Floods

DOOR, LOG = SimpleNamespace(name="headrace.doors"), SimpleNamespace(name="headrace.log")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def is_written(floods: Floods, event: str = "frame refused", logger: SimpleNamespace = DOOR) -> bool:
    try:
        floods(logger, "warning", {"event": event})
    except structlog.DropEvent:
        return False
    return True


def test_so_many_of_a_kind_are_written_in_a_while_and_the_next_line_counts_the_rest() -> None:
    clock = Clock()
    floods = Floods(clock)
    assert sum(is_written(floods) for _ in range(10_000)) == EVENTS_MAX
    clock.now_s += PERIOD_S
    event = floods(DOOR, "warning", {"event": "frame refused"})
    assert event["left_out"] == 10_000 - EVENTS_MAX
    assert "left_out" not in floods(DOOR, "warning", {"event": "frame refused"})


def test_other_kinds_are_not_touched() -> None:
    floods = Floods(Clock())
    for _ in range(1000):
        is_written(floods)
    assert is_written(floods, "connection lost")
    assert is_written(floods, logger=LOG)


def test_kinds_are_bounded() -> None:
    floods = Floods(Clock())
    for number in range(5000):
        assert is_written(floods, f"a mistake with {number}")
    assert len(floods._kinds) <= 1000
