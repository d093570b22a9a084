"""The recent past of a metastore, and those who follow it.

Events are kept once, in order, up to a bound; each watcher has only a place in them. A watcher that falls behind
the bound is told so instead of skipping events or holding memory. Belongs to one event loop.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from headrace.control.metastore import Changes, KeyRange, WatchEvent, told
from headrace.errors import HeadraceError, RevisionCompacted

EVENTS_KEPT_MAX: Final = 50_000
"""Changes a watcher may lag behind. A bulk change of ten thousand partitions must fit several times."""

_by_revision = attrgetter("revision")


class History:
    """Events after `compacted`, the newest revision whose changes can no longer be told."""

    def __init__(self, revision: int, *, events_max: int = EVENTS_KEPT_MAX) -> None:
        self.compacted = revision
        self._events: list[WatchEvent] = []
        self._events_max = events_max
        self._news = asyncio.Event()
        self._is_over = False
        self._failure: HeadraceError | None = None

    def add(self, events: Sequence[WatchEvent]) -> None:
        self._events.extend(events)
        if len(self._events) > 2 * self._events_max:
            self._trim()
        self._announce()

    def end(self, failure: HeadraceError | None) -> None:
        """Nothing will follow: watchers finish, or raise `failure` after the last event they can have."""
        self._is_over = True
        self._failure = failure
        self._announce()

    def follow(self, keys: KeyRange, from_revision: int, *, without: str = "") -> "Watch":
        if from_revision <= self.compacted:
            raise RevisionCompacted(f"changes are kept after revision {self.compacted}, not from {from_revision}")
        return Watch(self, keys, from_revision, without)

    async def next_events(self, from_revision: int) -> list[WatchEvent]:
        """Every event kept from that revision on, as soon as there is one; none when the store has closed."""
        while True:
            if from_revision <= self.compacted:
                raise RevisionCompacted(f"fell behind: changes are kept after revision {self.compacted}")
            events = self._events[bisect_left(self._events, from_revision, key=_by_revision) :]
            if events:
                return events
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return []
            await self._news.wait()

    def _trim(self) -> None:
        # Whole revisions go, so that what is left can be told completely.
        self.compacted = self._events[-self._events_max].revision
        del self._events[: bisect_left(self._events, self.compacted + 1, key=_by_revision)]

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Watch:
    """One watcher's place in the history; an async iterator. Dropping it is enough to end it."""

    def __init__(self, history: History, keys: KeyRange, from_revision: int, without: str) -> None:
        self._history = history
        self._keys = keys
        self._without = without
        self._next_revision = from_revision

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> Changes:
        events = await self._history.next_events(self._next_revision)
        if not events:
            raise StopAsyncIteration
        revision = events[-1].revision
        self._next_revision = revision + 1
        return Changes(revision, told(events, self._keys, self._without))
