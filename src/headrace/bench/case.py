"""What a workload is made of, and how a broker's CPU is charged to the work that caused it."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.bench.rivals import Broker, Rival
from headrace.bench.scale import Scale

_QUIET_CPU_SHARE: Final = 0.1
_QUIET_LOOK_SECONDS: Final = 0.25
_QUIET_LOOKS: Final = 2
_QUIET_SECONDS_MAX: Final = 30.0

Measure = Callable[[Broker, Scale], dict[str, float]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the comparison: measured once per rival and round."""

    workload: str
    name: str
    measure: Measure
    door: str = "kafka"
    """Measured only for brokers that have this door."""
    is_fresh: bool = False
    """Wants a broker of its own, just started on an empty directory."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the cases that answer it."""

    name: str
    title: str
    question: str
    cases: Callable[[Scale], list[Case]]
    rounds: Callable[[Scale], int] = lambda scale: scale.rounds
    rivals: Sequence[Rival] | None = None
    """Measured over these, whoever else was asked for: the workload is about a setting that only they have."""


class CpuMeter:
    """A broker's CPU seconds from `begin` to a later look."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._begun_at = 0.0

    def begin(self) -> None:
        self._begun_at = self._broker.read_usage().cpu_seconds

    def seconds(self) -> float:
        return self._broker.read_usage().cpu_seconds - self._begun_at

    def seconds_when_quiet(self) -> float:
        """What the broker put off (compaction, upload, flush) is part of the price of the work that caused it."""
        _await_quiet(self._broker)
        return self.seconds()


def settle(broker: Broker) -> None:
    """Wait until earlier work is over, so that nobody pays for it twice.

    The broker has finished what it put off, and what an unflushed rival left in the page cache is on the disk, where
    it would otherwise hold up the next one's flushes.
    """
    _await_quiet(broker)
    os.sync()


def _await_quiet(broker: Broker) -> None:
    deadline = time.monotonic() + _QUIET_SECONDS_MAX
    quiet_looks = 0
    before = broker.read_usage().cpu_seconds
    while quiet_looks < _QUIET_LOOKS and time.monotonic() < deadline:
        time.sleep(_QUIET_LOOK_SECONDS)
        after = broker.read_usage().cpu_seconds
        quiet_looks = quiet_looks + 1 if after - before <= _QUIET_CPU_SHARE * _QUIET_LOOK_SECONDS else 0
        before = after
