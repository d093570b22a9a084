"""Turns on the event loop: how long one door may hold it before everybody else gets theirs.

A client that pipelines, or a flush that releases hundreds of answers, brings more work than other doors' clients should
have to wait for. So whoever works off a pile asks `is_over` after every piece, and leaves the rest to the `next` turn.

Between two turns the loop looks at its sockets, and what they have brought goes first: those who wait are called through a
descriptor, as if they had come in anew. A plain `call_soon` would put the next turn ahead of all that, and an append of
another door would wait for a whole one three times: before it is flushed, before its flush is noticed, before it is
answered.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.broker.deferred import Deferred

TURN_NS: Final = 200_000
"""Some twenty to thirty small requests. Shorter turns cost throughput, longer ones everybody else's latency."""


class Turns:
    """One per door. What waits goes on in the order in which it asked."""

    def __init__(self, nanoseconds: Callable[[], int] = time.monotonic_ns) -> None:
        self._nanoseconds = nanoseconds
        self._is_begun = False
        self._ends_ns = 0
        self._waiting: deque[Deferred[str]] = deque()
        self._bells: list[int] = []
        """Where a turn for those who wait is announced, opened by the first. Two of them: one that has just
        been heard keeps its place ahead of others until the kernel has found it silent once."""
        self._is_closed = False

    def is_over(self) -> bool:
        """Whether this turn has had its time. Whoever asks first begins it."""
        if self._is_begun:
            return self._nanoseconds() >= self._ends_ns
        self._begin()
        return False

    def next(self) -> Deferred[str]:
        """Resolved in a later turn; then one piece of work may be done before `is_over` is asked again."""
        if not self._is_begun:
            self._begin()
        turn: Deferred[str] = Deferred()
        if not self._is_closed:
            self._waiting.append(turn)
        return turn

    def close(self) -> None:
        """There are no more turns; what waits for one has nobody left to tell."""
        self._is_closed = True
        self._waiting.clear()
        for bell in self._bells:
            asyncio.get_running_loop().remove_reader(bell)
            os.close(bell)
        self._bells.clear()

    def _begin(self) -> None:
        if self._is_closed:
            return
        self._is_begun = True
        self._ends_ns = self._nanoseconds() + TURN_NS
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """The loop has been around. Those who wait go on as soon as it has looked at its sockets."""
        self._is_begun = bool(self._waiting)
        if self._is_begun:
            self._ring()

    def _ring(self) -> None:
        if not self._bells:
            self._hang_bells()
        self._bells.reverse()
        os.eventfd_write(self._bells[0], 1)

    def _hang_bells(self) -> None:
        for _ in range(2):
            bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            asyncio.get_running_loop().add_reader(bell, self._rung, bell)
            self._bells.append(bell)

    def _rung(self, bell: int) -> None:
        os.eventfd_read(bell)
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The next turn: those who wait come first, then whatever arrives until the time is up."""
        self._ends_ns = self._nanoseconds() + TURN_NS
        while self._waiting:
            self._waiting.popleft().resolve("")
            if self._nanoseconds() >= self._ends_ns:
                break
        # Rung only now, behind the work: whatever has arrived meanwhile is ahead of the next turn.
        if self._waiting:
            self._ring()
        else:
            asyncio.get_running_loop().call_soon(self._end)
