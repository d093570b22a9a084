"""Metastores for tests: a clock that obeys, and one backend's data to open stores on."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from headrace.control.metastore import Metastore


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
