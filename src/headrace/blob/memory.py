"""Objects in a dictionary: for tests, and for nodes that are meant to forget."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from headrace.blob.store import Buffer, ObjectInfo
from headrace.clock import Clock
from headrace.errors import AlreadyExists, ObjectNotFound, StoreUnavailable


class _Held(msgspec.Struct, frozen=True, gc=False):
    data: bytes
    modified_ms: int


class MemoryBlobStore:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, _Held] = {}

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        self._objects[key] = _Held(b"".join(chunks), self._clock.now_ms())

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        if key in self._objects:
            raise AlreadyExists(key)
        await self.put(key, chunks)

    async def get(self, key: str) -> Buffer:
        return self._held(key).data

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        data = self._held(key).data
        if position + length > len(data):
            raise StoreUnavailable(f"{key}: {length} bytes at {position} of {len(data)}")
        return memoryview(data)[position : position + length]

    async def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._held(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        for key in sorted(key for key in self._objects if key > after and key.startswith(prefix)):
            held = self._objects.get(key)
            if held is not None:
                yield self._info(key, held)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)

    async def close(self) -> None:
        pass

    def _held(self, key: str) -> _Held:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectNotFound(key) from None

    @staticmethod
    def _info(key: str, held: _Held) -> ObjectInfo:
        return ObjectInfo(key=key, size=len(held.data), modified_ms=held.modified_ms)
