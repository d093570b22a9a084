"""What the metastore says about access, followed: every change comes through one watch, in the order in which it was made.

A change of our own is not applied when it is committed but when the watch brings it, as everybody else's is: there is one
order, and a rule that was taken away never shows once more. `change` returns when it has been seen.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from headrace.control import keys
from headrace.control.metastore import Changes, Delete, Metastore, Op, Put, absent, exists, only, read_all
from headrace.errors import Concurrent, HeadraceError, RevisionCompacted, Unavailable

_SEEN_S: Final = 10.0
_RETRY_S: Final = 1.0

log = structlog.get_logger(__name__)

Entry = Callable[[str, bytes | None], None]


class SecurityEntries:
    """`apply(key, value)` is told of each entry below `/security/`, a value of None for one that is gone; `changed` after that."""

    def __init__(self, store: Metastore, *, apply: Entry, changed: Callable[[], None]) -> None:
        self._store = store
        self._apply = apply
        self._changed = changed
        self._known: set[str] = set()
        """The keys of all entries there are."""
        self._revision = 0
        """All changes up to here have been taken."""
        self._waiting: list[_Waiting] = []

    async def load(self) -> None:
        """Read all of it anew; what has gone meanwhile goes here."""
        found = await read_all(self._store, keys.SECURITY)
        present = {item.key for item in found.items}
        for key in self._known - present:
            self._apply(key, None)
        for item in found.items:
            self._apply(item.key, item.value)
        self._known = present
        self._changed()
        self._taken(found.revision)

    async def follow(self) -> None:
        """Until cancelled. A metastore that fails is asked again; until it answers, what was known holds."""
        while True:
            try:
                async for changes in self._store.watch(keys.SECURITY, from_revision=self._revision + 1):
                    self._take(changes)
                return
            except RevisionCompacted:
                await self.load()
            except HeadraceError as error:
                log.error("changes of access rules are not heard", reason=str(error))
                await asyncio.sleep(_RETRY_S)

    def _take(self, changes: Changes) -> None:
        for event in changes.events:
            self._apply(event.key, event.value)
            if event.value is None:
                self._known.discard(event.key)
            else:
                self._known.add(event.key)
        if changes.events:
            self._changed()
        self._taken(changes.revision)

    def _taken(self, revision: int) -> None:
        self._revision = revision
        for waiting in self._waiting:
            if waiting.revision <= revision and not waiting.seen.done():
                waiting.seen.set_result(None)

    async def found(self, key: str, value: bytes) -> None:
        """Write what is written once; whoever is first has said it for all."""
        await self._store.txn((absent(key),), (Put(key, value),))

    async def change(self, *, puts: Mapping[str, bytes] | None = None, deletes: Collection[str] = ()) -> None:
        """All of it in one step; in force here when this returns. Raises `Concurrent` where one of `deletes` is gone already."""
        ops: list[Op] = [
            *(Put(key, value) for key, value in (puts or {}).items()),
            *(Delete(only(key)) for key in deletes),
        ]
        if not ops:
            return
        result = await self._store.txn([exists(key) for key in deletes], ops)
        if not result.is_success:
            raise Concurrent("somebody else has changed this at the same time")
        if self._revision >= result.revision:
            return
        waiting = _Waiting(result.revision, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(_SEEN_S):
                await waiting.seen
        except TimeoutError as error:
            raise Unavailable("the change is stored, but this broker has not heard of it yet") from error
        finally:
            self._waiting = [each for each in self._waiting if each is not waiting]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """Somebody whose change has been committed."""

    revision: int
    seen: "asyncio.Future[None]"
