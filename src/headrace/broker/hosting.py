"""What the driver of a machine needs: a clock that does not jump, a timer, and the requests that wait for answers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.broker.deferred import Deferred
from headrace.clock import Clock
from headrace.errors import HeadraceError

M = TypeVar("M")
R = TypeVar("R")


class SteadyClock:
    """Wall time that does not jump: a corrected clock must not end every session at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._offset_ms


class Tickets(Generic[R]):
    """Requests that wait for their answer, by the number that machines give back."""

    def __init__(self) -> None:
        self._waiting: dict[int, Deferred[R]] = {}
        self._next = 1

    def issue(self) -> tuple[int, Deferred[R]]:
        ticket = self._next
        self._next += 1
        deferred: Deferred[R] = Deferred()
        self._waiting[ticket] = deferred
        return ticket, deferred

    def settle(self, ticket: int, reply: R) -> None:
        deferred = self._waiting.pop(ticket, None)
        if deferred is not None:
            deferred.resolve(reply)

    def reject_all(self, error: HeadraceError) -> None:
        waiting, self._waiting = self._waiting, {}
        for deferred in waiting.values():
            deferred.reject(error)

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(slots=True)
class Alarm:
    """One timer that is set again only when it must ring earlier than it would."""

    ring: Callable[[], None]
    clock: SteadyClock
    _at_ms: int | None = None
    _handle: asyncio.TimerHandle | None = field(default=None)

    def set(self, at_ms: int | None) -> None:
        if at_ms is None or (self._at_ms is not None and self._at_ms <= at_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at_ms = at_ms
        wait_ms = max(at_ms - self.clock.now_ms(), 0)
        self._handle = asyncio.get_running_loop().call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._at_ms = None
        self._handle = None
        self.ring()

    def cancel(self) -> None:
        self._at_ms = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
