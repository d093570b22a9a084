"""An object store that misbehaves by the dice, and a fuse that kills the process at a chosen step.

Everything is decided by one `random.Random`: its seed replays a run. Faults are those of real stores: an error before
anything happened, an error after it did (a lost reply), half an object left behind, slowness.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer, ObjectInfo
from headrace.clock import Clock
from headrace.control.metastore import Compare, Metastore, Op, TxnResult
from headrace.errors import StoreUnavailable


class Killed(BaseException):
    """kill -9: nobody catches it, nothing after it happens."""


@dataclass
class Fuse:
    """Burns down by one at every step; from the last one on, every step kills."""

    steps_left: int | None = None
    steps: int = 0

    def burn(self) -> None:
        self.steps += 1
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Killed
            self.steps_left -= 1

    def renew(self, steps: int | None = None) -> None:
        self.steps_left = steps


class SimulatedStore(MemoryBlobStore):
    def __init__(self, clock: Clock, dice: random.Random, *, fault_rate: float = 0.0, fuse: Fuse | None = None) -> None:
        super().__init__(clock)
        self._dice = dice
        self.fault_rate = fault_rate
        self.fuse = fuse or Fuse()
        self.is_down = False

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._before()
        if self._dice.random() < self.fault_rate / 4:
            await super().put(key, [b"".join(chunks)[:-7]])
            raise StoreUnavailable("torn upload")
        await super().put(key, chunks)
        await self._after()

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._before()
        if key not in self._objects:
            await MemoryBlobStore.put(self, key, chunks)
            await self._after()
            return
        await super().put_if_absent(key, chunks)

    async def get(self, key: str) -> Buffer:
        await self._before()
        return await super().get(key)

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        await self._before()
        return await super().get_range(key, position, length)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._before()
        async for info in super().list(prefix, after=after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._before()
        await super().delete(keys)
        await self._after()

    async def _before(self) -> None:
        self.fuse.burn()
        for _ in range(self._dice.randrange(3)):
            await asyncio.sleep(0)
        if self.is_down or self._dice.random() < self.fault_rate / 2:
            raise StoreUnavailable("503 Slow Down")

    async def _after(self) -> None:
        self.fuse.burn()
        if self._dice.random() < self.fault_rate / 4:
            raise StoreUnavailable("the reply was lost")


class FusedMetastore:
    """A metastore whose transactions are steps of the fuse, before and after they take effect."""

    def __init__(self, store: Metastore, fuse: Fuse) -> None:
        self._store = store
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:  # Any: whatever the wrapped store has
        return getattr(self._store, name)

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        self._fuse.burn()
        result = await self._store.txn(compares, then_ops, else_ops)
        self._fuse.burn()
        return result
