"""Joining the pieces of an upload: the right bytes every time, in memory that is used again once nobody sends from it."""

from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from headrace.blob.remote import RemoteBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.errors import ObjectNotFound, StoreUnavailable

MIB = 1024 * 1024


class Sent:
    """Stands in for obstore's client: keeps what it was given, and where that lay."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.memories: list[int] = []
        self.is_failing = False
        self._held: list[Any] = []  # Any: as below; held so that no address is given out twice

    async def put_async(self, store: Any, key: str, data: Any, **options: Any) -> None:  # Any: obstore is untyped here
        self.bodies.append(bytes(data))
        memory = memoryview(data).obj
        self._held.append(memory)
        self.memories.append(id(memory))
        if self.is_failing:
            raise TimeoutError("no answer")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    sent = Sent()
    monkeypatch.setattr(obstore, "put_async", sent.put_async)
    return sent


async def test_uploads_of_nearly_the_same_size_are_joined_in_the_same_memory(sent: Sent) -> None:
    store = RemoteBlobStore(None, ObjectStoreSettings())
    pieces = [[b"a" * 3 * MIB, b"b" * MIB], [b"c" * 2 * MIB, b"d" * MIB, b"e"], [b"f" * 4 * MIB, b"g"]]
    for number, chunks in enumerate(pieces):
        await store.put(f"{number}", chunks)
    assert sent.bodies == [b"".join(chunks) for chunks in pieces]
    assert len(set(sent.memories)) == 1


async def test_memory_of_a_failed_upload_is_not_used_again(sent: Sent) -> None:
    """Its request may still be under way: the next upload's bytes must not get into it."""
    store = RemoteBlobStore(None, ObjectStoreSettings())
    sent.is_failing = True
    with pytest.raises(StoreUnavailable):
        await store.put("lost", [b"a" * MIB, b"b"])
    sent.is_failing = False
    await store.put("kept", [b"c" * MIB, b"d"])
    assert len(set(sent.memories)) == 2


async def test_a_single_piece_is_sent_from_where_it_lies(sent: Sent) -> None:
    piece = bytearray(b"x" * 2 * MIB)
    await RemoteBlobStore(None, ObjectStoreSettings()).put("one", [piece])
    assert sent.memories == [id(piece)]


async def test_an_error_is_one_sentence() -> None:
    store = RemoteBlobStore(MemoryStore(), ObjectStoreSettings())
    with pytest.raises(ObjectNotFound) as raised:
        await store.get("nowhere")
    assert "Debug source" in str(raised.value.__cause__), (
        "the library has changed: is the rest of its text still cut off?"
    )
    assert "\n" not in str(raised.value)
