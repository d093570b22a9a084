"""When the joining and the syncing of a rebalance end.

The first rebalance of an empty group is different: it ends `initial_delay_ms` after the last newcomer rather than
when everybody is there, for nobody knows who everybody is. All the extensions together last no longer than an
ordinary rebalance would.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class RebalanceTimers:
    join_deadline_ms: int | None = None
    """Set while joins are collected."""
    sync_deadline_ms: int | None = None
    """Set while members of a new generation may fetch their share."""
    _initial_delay_ms: int = 0
    _initial_remaining_ms: int | None = None
    """How much longer a first rebalance may be extended; None in any other."""
    _has_company: bool = False
    """Somebody joined since the initial delay was last extended."""

    @property
    def is_first(self) -> bool:
        """Is this the first rebalance of an empty group?"""
        return self._initial_remaining_ms is not None

    def deadlines(self) -> Iterable[int]:
        if self.join_deadline_ms is not None:
            yield self.join_deadline_ms
        if self.sync_deadline_ms is not None:
            yield self.sync_deadline_ms

    def start_first(self, *, now_ms: int, timeout_ms: int, initial_delay_ms: int) -> None:
        delay_ms = min(initial_delay_ms, timeout_ms)
        self.start_joining(now_ms=now_ms, timeout_ms=delay_ms)
        self._initial_delay_ms = delay_ms
        self._initial_remaining_ms = timeout_ms - delay_ms

    def start_joining(self, *, now_ms: int, timeout_ms: int) -> None:
        self.join_deadline_ms = now_ms + timeout_ms
        self.sync_deadline_ms = None
        self._initial_remaining_ms = None
        self._has_company = False

    def note_company(self) -> None:
        self._has_company = True

    def extend(self, now_ms: int) -> bool:
        """A first rebalance that company came to waits for more; false when it has waited long enough."""
        if not self._initial_remaining_ms or not self._has_company:
            return False
        delay_ms = min(self._initial_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms -= delay_ms
        self.join_deadline_ms = now_ms + delay_ms
        self._has_company = False
        return True

    def start_syncing(self, *, now_ms: int, timeout_ms: int) -> None:
        self.stop()
        self.sync_deadline_ms = now_ms + timeout_ms

    def stop(self) -> None:
        self.join_deadline_ms = None
        self.sync_deadline_ms = None
        self._initial_remaining_ms = None
        self._has_company = False
