"""Metastores for tests: a clock that obeys, and one backend's data to open stores on."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from headrace.clock import SystemClock
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.keyspace import Draft
from headrace.control.metastore import Compare, Metastore, Op, TxnResult
from headrace.control.sqlite_file import SqliteFile
from headrace.errors import TooLarge


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


class NarrowMetastore:
    """A store that takes no larger transactions than an etcd server does by default, over one that takes any."""

    def __init__(self, store: Metastore, txn_ops_max: int = 128) -> None:
        self._store = store
        self.txn_ops_max = txn_ops_max
        self.txn_count = 0
        self.get = store.get
        self.range = store.range
        self.grant_lease = store.grant_lease
        self.keep_alive = store.keep_alive
        self.revoke_lease = store.revoke_lease
        self.watch = store.watch
        self.close = store.close

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        longest = max(len(compares), len(then_ops), len(else_ops))
        if longest > self.txn_ops_max:
            raise TooLarge(f"transaction of {longest} operations, limit {self.txn_ops_max}")
        self.txn_count += 1
        return await self._store.txn(compares, then_ops, else_ops)


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
