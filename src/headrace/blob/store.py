"""The port: what headrace asks of an object store, and nothing more.

Keys are relative paths with `/` between their parts. An object is visible whole or not at all. There is no
compare-and-swap and no append: `put_if_absent` is the only condition, because every store has it.

Errors, for every backend: `ObjectNotFound`, `AlreadyExists` (of `put_if_absent`), `StoreUnavailable` for what
may pass (time-outs, 5xx, throttling, refused credentials, a full disk), `StorageFailed` for a local disk that
fails. After `StoreUnavailable` a write may or may not have happened; `put_once` settles that.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
from crc32c import crc32c

from headrace.errors import AlreadyExists, Corrupted, Fault, ObjectNotFound, StoreUnavailable

Buffer = bytes | bytearray | memoryview
_READINGS_MAX: Final = 5
_READINGS_AGREE: Final = 3
_T = TypeVar("_T")


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    key: str
    size: int
    modified_ms: int


class BlobStore(Protocol):
    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        """Write the object, replacing any other. Durable when it returns. `chunks` must not change meanwhile."""
        ...

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        """Write the object unless one exists, in which case `AlreadyExists`. Atomic against other writers."""
        ...

    async def get(self, key: str) -> Buffer: ...

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        """Exactly `length` bytes; fewer means `StoreUnavailable`, since an object's size never changes."""
        ...

    async def head(self, key: str) -> ObjectInfo: ...

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with `prefix` and sorts after `after`, in key order.

        `prefix` is empty or ends with `/`. Objects written or deleted meanwhile may or may not appear. Some stores
        order folder by folder, so use no two folder names where one is the other's beginning.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete all of them; one that does not exist is fine."""
        ...

    async def close(self) -> None: ...


async def put_once(store: BlobStore, key: str, chunks: Sequence[Buffer]) -> bool:
    """Create `key` with these bytes; True if this call did, False if it was there already with the same bytes.

    Settles lost replies and two writers of the same truth. Other bytes under the key are a `Fault`: create-only
    keys are derived from decisions that cannot differ.
    """
    try:
        await store.put_if_absent(key, chunks)
    except AlreadyExists:
        if not await holds(store, key, chunks):
            raise Fault(f"{key} exists with other content: two clusters, or two histories, share a bucket") from None
        return False
    return True


async def holds(store: BlobStore, key: str, chunks: Sequence[Buffer]) -> bool:
    """Whether the object under `key`, which the store says is there, has exactly these bytes.

    No single answer says that it has not: only other bytes on which several readings agree are believed.
    """
    readings: Counter[int] = Counter()
    for _ in range(_READINGS_MAX):
        try:
            data = await store.get(key)
        except ObjectNotFound as error:
            raise StoreUnavailable(f"{key}: the store says that it exists, and that it does not") from error
        is_same, crc = await asyncio.to_thread(_compare, data, chunks)
        if is_same:
            return True
        readings[crc] += 1
        if readings[crc] == _READINGS_AGREE:
            return False
    raise StoreUnavailable(f"{key}: the store gave other bytes each time it was read")


async def get_sound(store: BlobStore, key: str, decode: Callable[[Buffer], _T]) -> _T:
    """What `decode` makes of the object; `Corrupted` only when several readings agree on bytes that it refuses.

    One that is bad on the way is read again: nobody stops, and nothing is given up, because of a single answer.
    """
    readings: Counter[int] = Counter()
    for _ in range(_READINGS_MAX):
        data = await store.get(key)
        try:
            return decode(data)
        except Corrupted as error:
            crc = crc32c(data)
            readings[crc] += 1
            if readings[crc] == _READINGS_AGREE:
                raise Corrupted(f"{key}: {error}") from error
    raise StoreUnavailable(f"{key}: the store gave other bytes each time it was read")


async def get_agreed(store: BlobStore, key: str) -> bytes:
    """A small object without a CRC of its own: what two readings in a row agree on."""
    seen: bytes | None = None
    for _ in range(_READINGS_MAX):
        data = bytes(await store.get(key))
        if data == seen:
            return data
        seen = data
    raise StoreUnavailable(f"{key}: the store gave other bytes each time it was read")


def _compare(data: Buffer, chunks: Sequence[Buffer]) -> tuple[bool, int]:
    """Whether they are the same, and the CRC of `data`. A chunk at a time: together they may be large."""
    view = memoryview(data)
    position = 0
    for chunk in chunks:
        if bytes(view[position : position + len(chunk)]) != bytes(chunk):
            return False, crc32c(view)
        position += len(chunk)
    return position == len(view), crc32c(view)
