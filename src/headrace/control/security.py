"""What the metastore says about access, followed: every change comes through one watch, in the order in which it was made.

A change of our own is not applied when it is committed but when the watch brings it, as everybody else's is: there is one
order, and a rule that was taken away never shows once more. `change` returns when it has been seen. It compares every key that it
writes with what is known here: of two that change one thing at the same time the second decides anew, and overwrites nothing.
"""

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from headrace.control import keys
from headrace.control.metastore import Changes, Delete, Metastore, Op, Put, absent, only, read_all, unchanged
from headrace.errors import Concurrent, HeadraceError, RevisionCompacted, Unavailable

_SEEN_S: Final = 10.0
_RETRY_S: Final = 1.0
_ATTEMPTS_MAX: Final = 64
"""In each that fails somebody else has succeeded."""

log = structlog.get_logger(__name__)

Entry = Callable[[str, bytes | None], None]


class SecurityEntries:
    """`apply(key, value)` is told of each entry below `/security/`, a value of None for one that is gone; `changed` after that."""

    def __init__(self, store: Metastore, *, apply: Entry, changed: Callable[[], None]) -> None:
        self._store = store
        self._apply = apply
        self._changed = changed
        self._known: dict[str, int] = {}
        """All entries there are, and when each was written."""
        self._revision = 0
        """All changes up to here have been taken."""
        self._waiting: list[_Waiting] = []

    async def load(self) -> None:
        """Read all of it anew; what has gone meanwhile goes here."""
        found = await read_all(self._store, keys.SECURITY)
        present = {item.key: item.mod_revision for item in found.items}
        for key in self._known.keys() - present.keys():
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
                self._known.pop(event.key, None)
            else:
                self._known[event.key] = event.revision
        if changes.events:
            self._changed()
        self._taken(changes.revision)

    def _taken(self, revision: int) -> None:
        self._revision = revision
        for waiting in self._waiting:
            if not waiting.seen.done() and waiting.is_so():
                waiting.seen.set_result(None)

    async def found(self, key: str, value: bytes) -> None:
        """Write what is written once; whoever is first has said it for all."""
        await self._store.txn((absent(key),), (Put(key, value),))

    async def change(self, plan: Callable[[], "SecurityChange"]) -> None:
        """All that `plan` wants, in one step; in force here when this returns.

        `plan` decides from what is known here. Where somebody else has changed one of its keys meanwhile nothing is written: the
        change is heard of first, and `plan` is asked again. What it raises ends the attempt.
        """
        for _ in range(_ATTEMPTS_MAX):
            wanted = plan()
            if not wanted.puts and not wanted.deletes:
                return
            compared = {key: self._known.get(key, 0) for key in (*wanted.puts, *wanted.deletes)}
            ops: list[Op] = [
                *(Put(key, value) for key, value in wanted.puts.items()),
                *(Delete(only(key)) for key in wanted.deletes),
            ]
            result = await self._store.txn([unchanged(key, revision) for key, revision in compared.items()], ops)
            if result.is_success:
                await self._until(functools.partial(self._has_taken, result.revision))
                return
            await self._until(functools.partial(self._knows_better, compared))
        raise Concurrent(f"somebody else has changed this at the same time, {_ATTEMPTS_MAX} times in a row")

    def _has_taken(self, revision: int) -> bool:
        return self._revision >= revision

    def _knows_better(self, compared: Mapping[str, int]) -> bool:
        return any(self._known.get(key, 0) != revision for key, revision in compared.items())

    async def _until(self, is_so: Callable[[], bool]) -> None:
        if is_so():
            return
        waiting = _Waiting(is_so, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(_SEEN_S):
                await waiting.seen
        except TimeoutError as error:
            raise Unavailable("this broker does not hear of changes; what was changed may be stored") from error
        finally:
            self._waiting = [each for each in self._waiting if each is not waiting]


class SecurityChange(msgspec.Struct, frozen=True):
    """What to write below `/security/`, and what to delete."""

    puts: Mapping[str, bytes] = {}
    deletes: Collection[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """Somebody who waits for the watch to bring something."""

    is_so: Callable[[], bool]
    seen: "asyncio.Future[None]"
