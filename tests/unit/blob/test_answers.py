"""Every status a store can answer with has a place, for every request: three say something of the object, all others nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from tests.support.object_stores import CREDENTIALS
from tests.support.scripted_s3 import ScriptedS3, scripted_s3

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.remote import RemoteBlobStore, open_gcs, open_s3
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import Buffer, get_sound, holds, put_once
from headrace.clock import SystemClock
from headrace.errors import AlreadyExists, Corrupted, Fault, HeadraceError, ObjectNotFound, StoreUnavailable

STATUSES = (
    *(300, 301, 304, 307, 400, 401, 403, 404, 405, 408, 409, 410, 411, 412, 413, 416, 418, 429),
    *range(500, 508),
)
REQUESTS: dict[str, Callable[[RemoteBlobStore], Awaitable[object]]] = {
    "put": lambda store: store.put("k", [b"x"]),
    "create": lambda store: store.put_if_absent("k", [b"x"]),
    "get": lambda store: store.get("k"),
    "get_range": lambda store: store.get_range("k", 0, 4),
    "head": lambda store: store.head("k"),
    "list": lambda store: _listed(store),
    "delete": lambda store: store.delete(["k"]),
}
SAYING: dict[tuple[str, int], type[HeadraceError] | None] = {
    ("create", 412): AlreadyExists,
    ("get", 404): ObjectNotFound,
    ("get_range", 404): ObjectNotFound,
    ("head", 404): ObjectNotFound,
}


async def _listed(store: RemoteBlobStore) -> list[object]:
    return [info async for info in store.list("p/")]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    with scripted_s3() as server:
        yield server


@pytest.fixture(params=["s3", "gcs"])
async def store(
    request: pytest.FixtureRequest, server: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RemoteBlobStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    if request.param == "s3":
        settings = ObjectStoreSettings(type="s3", s3_bucket="b", s3_endpoint=server.endpoint)
        yield open_s3(settings)
    else:
        yield open_gcs(ObjectStoreSettings(type="gcs", gcs_bucket="b", gcs_endpoint=server.endpoint))


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_status_has_its_meaning(store: RemoteBlobStore, server: ScriptedS3, name: str) -> None:
    for status in STATUSES:
        server.status = status
        try:
            await REQUESTS[name](store)
            raised = None
        except HeadraceError as error:
            raised = type(error)
        if (name, status) == ("delete", 404):
            # Google deletes key by key, and 404 means that it is gone; Amazon's request for many names the bucket.
            assert raised in (None, StoreUnavailable)
        else:
            assert raised is SAYING.get((name, status), StoreUnavailable), (name, status)


class Contrary(MemoryBlobStore):
    """Says of everything that it exists, and gives one reading after the other of what it was given."""

    def __init__(self, *readings: bytes) -> None:
        super().__init__(SystemClock())
        self._readings = iter(readings)

    async def put_if_absent(self, key: str, chunks: object) -> None:
        raise AlreadyExists(key)

    async def get(self, key: str) -> Buffer:
        try:
            return next(self._readings)
        except StopIteration:
            raise ObjectNotFound(key) from None


async def test_one_bad_reading_does_not_make_two_histories() -> None:
    assert await put_once(Contrary(b"xbc", b"abc"), "k", [b"a", b"bc"]) is False


async def test_readings_that_agree_on_other_bytes_are_believed() -> None:
    with pytest.raises(Fault):
        await put_once(Contrary(b"other", b"rotten", b"other", b"other"), "k", [b"mine"])


async def test_what_does_not_decode_is_read_again_before_it_counts_as_damaged() -> None:
    def decode(data: Buffer) -> bytes:
        if data != b"sound":
            raise Corrupted("it is not")
        return bytes(data)

    assert await get_sound(Contrary(b"rotten", b"worse", b"sound"), "k", decode) == b"sound"
    with pytest.raises(Corrupted, match="k: it is not"):
        await get_sound(Contrary(b"rotten", b"rotten", b"rotten"), "k", decode)
    with pytest.raises(StoreUnavailable):
        await get_sound(Contrary(b"1", b"2", b"3", b"4", b"5"), "k", decode)


@pytest.mark.parametrize("read", [b"ab", b"abcd", b""])
async def test_a_shorter_or_longer_object_is_another(read: bytes) -> None:
    assert not await holds(Contrary(read, read, read), "k", [b"a", b"bc"])


async def test_a_store_that_contradicts_itself_is_an_outage() -> None:
    with pytest.raises(StoreUnavailable):
        await put_once(Contrary(), "k", [b"mine"])
    with pytest.raises(StoreUnavailable):
        await put_once(Contrary(b"1", b"2", b"3", b"4", b"5"), "k", [b"mine"])
