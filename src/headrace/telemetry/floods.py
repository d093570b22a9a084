"""Events that strangers can cause as often as they like: so many of a kind are written in a while, the rest are counted.

A kind is a component and the words of the event. The first line of the next while says in `left_out` how many lines of its
kind were not written before it. Every event passes here, so nobody who logs has to think of it.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from structlog.typing import EventDict

EVENTS_MAX: Final = 30
PERIOD_S: Final = 10.0
_KINDS_MAX: Final = 1_000
"""Words of events are ours and few; this is for the mistake of putting a name into them."""


class Named(Protocol):
    name: str


class _Kind:
    __slots__ = ("began_s", "left_out", "written")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.written = 0
        self.left_out = 0


class Floods:
    """A processor of structlog's, in front of all that cost something."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def __call__(self, logger: Named, method: str, event: EventDict) -> EventDict:
        now_s = self._monotonic_s()
        key = (logger.name, str(event.get("event")))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind(now_s)
        elif now_s - kind.began_s >= PERIOD_S:
            kind.began_s = now_s
            kind.written = 0
        if kind.written >= EVENTS_MAX:
            kind.left_out += 1
            raise structlog.DropEvent
        kind.written += 1
        if kind.left_out:
            event["left_out"] = kind.left_out
            kind.left_out = 0
        return event
