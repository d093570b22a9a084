"""Metastores for tests: a clock that obeys, and one backend's data to open stores on."""

import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from headrace.clock import SystemClock
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.keyspace import Draft
from headrace.control.metastore import (
    Changes,
    Compare,
    Metastore,
    Op,
    Read,
    TxnLimits,
    TxnResult,
    WatchEvent,
    check_size,
    only,
)
from headrace.control.sqlite_file import SqliteFile
from headrace.errors import OutcomeUnknown


@dataclass
class ManualClock:
    """Stands still until told otherwise."""

    time_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def advance(self, milliseconds: int) -> None:
        self.time_ms += milliseconds


@dataclass
class Stores:
    """One backend's data; `open` gives a store over it, `expire` lets its leases notice the clock."""

    clock: ManualClock
    opener: Callable[[], Awaitable[Metastore]]
    expire: Callable[[Metastore], Awaitable[None]]
    undo: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self) -> Metastore:
        store = await self.opener()
        self.undo.push_async_callback(store.close)
        return store


ETCD_LIMITS = TxnLimits(ops_max=128, bytes_max=1_572_864)
"""Of an etcd server, unless its operator says otherwise."""


class NarrowMetastore:
    """A store that takes no larger transactions than an etcd server does by default, over one that takes any."""

    def __init__(self, store: Metastore, limits: TxnLimits = ETCD_LIMITS) -> None:
        self._store = store
        self.txn_limits = limits
        self.txn_count = 0
        self.get = store.get
        self.range = store.range
        self.pages = store.pages
        self.grant_lease = store.grant_lease
        self.keep_alive = store.keep_alive
        self.revoke_lease = store.revoke_lease
        self.watch = store.watch
        self.close = store.close

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        check_size(self.txn_limits, compares, then_ops, else_ops)
        self.txn_count += 1
        return await self._store.txn(compares, then_ops, else_ops)


class Unclosed(NarrowMetastore):
    """One of several users of a store: it closes for this one only."""

    def __init__(self, store: Metastore, limits: TxnLimits = ETCD_LIMITS) -> None:
        super().__init__(store, limits)
        self.close = _nothing


async def _nothing() -> None:
    pass


class LossyMetastore(NarrowMetastore):
    """One in three writing transactions is lost on its way there, or its reply on the way back: by `chance`, so that a seed repeats it."""

    def __init__(self, store: Metastore, chance: random.Random, limits: TxnLimits = ETCD_LIMITS) -> None:
        super().__init__(store, limits)
        self._chance = chance
        self.lost_count = 0

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        if all(isinstance(op, Read) for op in (*then_ops, *else_ops)):
            return await super().txn(compares, then_ops, else_ops)
        if self._chance.random() < 1 / 6:
            self.lost_count += 1
            raise OutcomeUnknown("the request was lost")
        result = await super().txn(compares, then_ops, else_ops)
        if self._chance.random() < 1 / 5:
            self.lost_count += 1
            raise OutcomeUnknown("the reply was lost")
        return result


async def newest_revision(store: Metastore) -> int:
    return (await store.range(only("/nothing"))).revision


async def take(watch: AsyncIterator[Changes], count: int) -> list[WatchEvent]:
    """The next events, of as many revisions as it takes; whole ones, so there may be a few more."""
    events: list[WatchEvent] = []
    while len(events) < count:
        events += (await anext(watch)).events
    return events


class HeldFile(SqliteFile):
    """A file whose commits wait while `may_finish` is clear."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.has_begun = threading.Event()
        self.may_finish = threading.Event()
        self.may_finish.set()

    def commit(self, draft: Draft) -> None:
        self.has_begun.set()
        assert self.may_finish.wait(60)
        super().commit(draft)


def store_over(file: SqliteFile) -> EmbeddedMetastore:
    return EmbeddedMetastore(file, file.load(), writer=ThreadPoolExecutor(1), clock=SystemClock())
