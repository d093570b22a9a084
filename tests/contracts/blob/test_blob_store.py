"""What every object store must do for us, whichever it is."""

import asyncio
from uuid import uuid4

import pytest

from headrace.blob.probe import probe
from headrace.blob.store import BlobStore, put_once
from headrace.errors import AlreadyExists, Fault, ObjectNotFound

pytestmark = pytest.mark.requirement("R3.103")


async def keys_of(store: BlobStore, prefix: str, *, after: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix, after=after)]


async def test_reads_back_what_was_put(store: BlobStore) -> None:
    await store.put("data/00/one", [b"hello ", memoryview(b"world"), bytearray(b"!")])
    assert bytes(await store.get("data/00/one")) == b"hello world!"
    info = await store.head("data/00/one")
    assert (info.key, info.size) == ("data/00/one", 12)
    assert info.modified_ms > 1_600_000_000_000


async def test_put_replaces(store: BlobStore) -> None:
    await store.put("key", [b"old"])
    await store.put("key", [b"newer"])
    assert bytes(await store.get("key")) == b"newer"


async def test_range_is_exact(store: BlobStore) -> None:
    await store.put("key", [bytes(range(256)) * 100])
    assert bytes(await store.get_range("key", 0, 3)) == b"\0\1\2"
    assert bytes(await store.get_range("key", 256 * 99 + 250, 6)) == bytes(range(250, 256))


async def test_missing_object_is_not_found(store: BlobStore) -> None:
    for request in (store.get("no/such"), store.get_range("no/such", 0, 1), store.head("no/such")):
        with pytest.raises(ObjectNotFound):
            await request


async def test_create_only_refuses_a_second_writer(store: BlobStore) -> None:
    await store.put_if_absent("manifests/1", [b"first"])
    with pytest.raises(AlreadyExists):
        await store.put_if_absent("manifests/1", [b"second"])
    assert bytes(await store.get("manifests/1")) == b"first"


async def test_one_of_many_racing_creators_wins(store: BlobStore) -> None:
    async def create(content: bytes) -> bool:
        try:
            await store.put_if_absent("race", [content])
        except AlreadyExists:
            return False
        return True

    contents = [b"writer %d" % number for number in range(8)]
    won = await asyncio.gather(*map(create, contents))
    assert won.count(True) == 1
    assert bytes(await store.get("race")) == contents[won.index(True)]


async def test_put_once_accepts_its_own_bytes_and_nothing_else(store: BlobStore) -> None:
    assert await put_once(store, "once", [b"ab", b"c"])
    assert not await put_once(store, "once", [b"abc"])
    with pytest.raises(Fault):
        await put_once(store, "once", [b"other"])


async def test_list_is_in_key_order_and_stays_in_its_prefix(store: BlobStore) -> None:
    keys = ["a/1", "a/b/2", "a/c", "a/d/3", "ab/4", "b"]
    for key in keys:
        await store.put(key, [b"x"])
    assert await keys_of(store, "a/") == ["a/1", "a/b/2", "a/c", "a/d/3"]
    assert await keys_of(store, "") == keys
    assert await keys_of(store, "nothing/") == []


async def test_list_goes_on_after_a_key(store: BlobStore) -> None:
    for number in range(1, 8):
        await store.put(f"manifests/{number:020d}.hrm", [b"x"])
    assert await keys_of(store, "manifests/", after=f"manifests/{5:020d}.hrm") == [
        f"manifests/{number:020d}.hrm" for number in (6, 7)
    ]
    assert await keys_of(store, "manifests/", after="manifests/9") == []


async def test_delete_is_idempotent(store: BlobStore) -> None:
    for key in ("a/1", "a/2", "a/3"):
        await store.put(key, [b"x"])
    await store.delete(["a/1", "a/3", "never/was"])
    await store.delete(["a/1"])
    await store.delete([])
    assert await keys_of(store, "") == ["a/2"]


async def test_large_object_round_trips(store: BlobStore) -> None:
    piece = bytes(range(256)) * 4096
    await store.put("large", [piece] * 20)
    assert (await store.head("large")).size == 20 * len(piece)
    assert bytes(await store.get_range("large", 19 * len(piece), len(piece))) == piece


async def test_probe_accepts_it_and_leaves_nothing_behind(store: BlobStore) -> None:
    await probe(store, f"probe/{uuid4().hex}")
    assert await keys_of(store, "probe/") == []
