"""The port: what headrace asks of an object store, and nothing more.

Keys are relative paths with `/` between their parts. An object is visible whole or not at all. There is no
compare-and-swap and no append: `put_if_absent` is the only condition, because every store has it.

Errors, for every backend: `ObjectNotFound`, `AlreadyExists` (of `put_if_absent`), `StoreUnavailable` for what
may pass (time-outs, 5xx, throttling, refused credentials, a full disk), `StorageFailed` for a local disk that
fails. After `StoreUnavailable` a write may or may not have happened; `put_once` settles that.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from headrace.errors import AlreadyExists, Fault

Buffer = bytes | bytearray | memoryview


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
        if bytes(await store.get(key)) != b"".join(chunks):
            raise Fault(f"{key} exists with other content: two clusters, or two histories, share a bucket") from None
        return False
    return True
