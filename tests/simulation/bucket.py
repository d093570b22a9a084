"""The bucket and the metastore's file of a simulated node: they take their time, fail, and lose replies.

Both outlive every process. Calls run as the node's own, so a kill may find a write before or after its effect.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer, ObjectInfo
from headrace.clock import Clock
from headrace.control.keyspace import Draft
from headrace.control.sqlite_file import IN_MEMORY, SqliteFile
from headrace.errors import StorageFailed, StoreUnavailable

_CALL_S: Final = (0.002, 0.04)
_SILENCE_S: Final = 30.0


class SimulatedBucket(MemoryBlobStore):
    def __init__(self, clock: Clock, chance: random.Random) -> None:
        super().__init__(clock)
        self._chance = chance
        self.is_down = False
        self.fault_rate = 0.0
        """Share of calls that fail: before they do anything, or after, or in silence."""
        self.slowness = 1.0

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        await self._before()
        await super().put(key, [data])
        await self._after()

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        await self._before()
        if key in self._objects:
            await super().put_if_absent(key, [data])  # Says that it is there.
        await super().put(key, [data])
        await self._after()

    async def get(self, key: str) -> Buffer:
        await self._before()
        return await super().get(key)

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        await self._before()
        return await super().get_range(key, position, length)

    async def head(self, key: str) -> ObjectInfo:
        await self._before()
        return await super().head(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._before()
        async for info in super().list(prefix, after=after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._before()
        await super().delete(keys)
        await self._after()

    async def _before(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_CALL_S) * self.slowness)
        if self.is_down:
            raise StoreUnavailable("503 Service Unavailable")
        dice = self._chance.random()
        if dice < self.fault_rate / 10:
            await asyncio.sleep(_SILENCE_S)
        elif dice < self.fault_rate / 2:
            raise StoreUnavailable("503 Slow Down")

    async def _after(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_CALL_S) * self.slowness / 4)
        if self._chance.random() < self.fault_rate / 2:
            raise StoreUnavailable("the reply was lost")

    def copy(self) -> MemoryBlobStore:
        """What is in it now, without faults."""
        copy = MemoryBlobStore(self._clock)
        copy._objects = dict(self._objects)
        return copy


class SimulatedMetastoreFile(SqliteFile):
    """SQLite in memory that survives the processes which open it. A commit may fail, before or after its effect."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(IN_MEMORY)
        self._chance = chance
        self.fails_next = False

    def commit(self, draft: Draft) -> None:
        if not self.fails_next:
            super().commit(draft)
            return
        self.fails_next = False
        if self._chance.random() < 0.5:
            super().commit(draft)
        raise StorageFailed("metastore: disk I/O error")

    def close(self) -> None:
        """Its node is gone; the next one opens it again."""

    def discard(self) -> None:
        super().close()
