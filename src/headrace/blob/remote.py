"""S3, GCS and whatever speaks like them, through obstore.

obstore's own retries are switched off: `retrying.py` does them, where they can be counted and tested.
Every object is a single PUT, `put_if_absent` one with `If-None-Match: *`: stores take up to 5 GiB so, ours stay below 2, and
a multipart upload could not be made create-only.
"""

import asyncio
import mmap
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import obstore
from obstore import exceptions as refused
from obstore.store import GCSStore, S3Store

from headrace.aligned import fresh_pages
from headrace.blob.answers import Request, meaning_of, status_in
from headrace.blob.refusals import explain, is_without_bucket
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import Buffer, ObjectInfo
from headrace.errors import HeadraceError, ObjectNotFound, StoreUnavailable

_COPY_SLICE: Final = 1024 * 1024
_STAGING_KEPT: Final = 2
"""Joined uploads whose memory is kept: as many as are under way at once by default."""
_STAGING_BYTES_MAX: Final = 72 * 1024 * 1024
"""Larger memory is not kept. An object of the default size is a little larger than 64 MiB: it ends with a whole batch and a
footer."""
_STAGING_WORTH: Final = 1024 * 1024
"""Smaller uploads are joined in fresh memory: it costs them little."""
_STAGING_STEP: Final = 8 * 1024 * 1024
_STAGING_SLACK: Final = 4
"""Memory that is more times larger than an upload is left for larger ones."""
_DELETE_KEYS_MAX: Final = 1000
"""Most keys one DeleteObjects takes."""


class RemoteBlobStore:
    def __init__(self, store: Any, settings: ObjectStoreSettings) -> None:  # Any: obstore's stores share no public base
        self._store = store
        self._settings = settings
        self._staging = _Staging()

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        joined = await self._staging.join(chunks)
        with self._translating(Request.PUT, key):
            await obstore.put_async(self._store, key, joined.data, use_multipart=False)
        self._staging.give_back(joined)

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        joined = await self._staging.join(chunks)
        with self._translating(Request.CREATE, key):
            await obstore.put_async(self._store, key, joined.data, mode="create", use_multipart=False)
        self._staging.give_back(joined)

    async def get(self, key: str) -> Buffer:
        with self._translating(Request.GET, key):
            found = await obstore.get_async(self._store, key)
            return memoryview(await found.bytes_async())

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        with self._translating(Request.GET, key):
            data = memoryview(await obstore.get_range_async(self._store, key, start=position, length=length))
        if len(data) != length:
            raise StoreUnavailable(f"{key}: got {len(data)} of {length} bytes at {position}")
        return data

    async def head(self, key: str) -> ObjectInfo:
        with self._translating(Request.HEAD, key):
            return _info(await obstore.head_async(self._store, key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        assert prefix == "" or prefix.endswith("/")
        with self._translating(Request.LIST, prefix):
            async for page in obstore.list(self._store, prefix=prefix or None, offset=after or None):
                for found in page:
                    yield _info(found)

    async def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _DELETE_KEYS_MAX):
            page = list(keys[start : start + _DELETE_KEYS_MAX])
            try:
                with self._translating(Request.DELETE, page[0]):
                    await obstore.delete_async(self._store, page)
            except ObjectNotFound:
                # S3 does not mind a missing key, GCS answers 404: the page is not known to be done.
                await self._delete_singly(page)

    async def _delete_singly(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with self._translating(Request.DELETE, key):
                    await obstore.delete_async(self._store, key)
            except ObjectNotFound:
                continue

    async def close(self) -> None:
        pass

    def _translating(self, request: Request, key: str) -> "_Translating":
        return _Translating(request, key, self._settings)


def open_s3(settings: ObjectStoreSettings) -> RemoteBlobStore:
    config: dict[str, Any] = {  # Any: obstore's configuration mixes types
        "region": settings.s3_region,
        "virtual_hosted_style_request": not settings.s3_path_style,
        "unsigned_payload": not settings.s3_sign_payload,
    }
    if settings.s3_endpoint:
        config["endpoint"] = settings.s3_endpoint
    store = S3Store(
        settings.s3_bucket,
        prefix=settings.s3_prefix or None,
        config=config,
        **_options(settings, settings.s3_endpoint),
    )
    return RemoteBlobStore(store, settings)


def open_gcs(settings: ObjectStoreSettings) -> RemoteBlobStore:
    config: dict[str, Any] = {}  # Any: as above
    if settings.gcs_endpoint:
        config["service_account_key"] = _emulator_account(settings.gcs_endpoint)
    store = GCSStore(
        settings.gcs_bucket,
        prefix=settings.gcs_prefix or None,
        config=config,
        **_options(settings, settings.gcs_endpoint),
    )
    return RemoteBlobStore(store, settings)


def _emulator_account(endpoint: str) -> str:
    """What obstore takes for "no credentials": without it, it would ask Google's metadata service for some."""
    account = {
        "gcs_base_url": endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return msgspec.json.encode(account).decode()


def _options(settings: ObjectStoreSettings, endpoint: str | None) -> dict[str, Any]:  # Any: as above
    return {
        "client_options": {
            "timeout": timedelta(milliseconds=settings.request_timeout_ms),
            "connect_timeout": timedelta(milliseconds=settings.connect_timeout_ms),
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
        },
        "retry_config": {"max_retries": 0},
    }


class _Staging:
    """Memory where the pieces of an upload become one: obstore takes an iterable only as a multipart upload.

    Used again: joining 64 MiB in fresh memory costs four times the CPU of the copy itself. In large pages: both this copy and
    the socket's would spend half their time on finding small ones.
    """

    def __init__(self) -> None:
        self._idle: list[mmap.mmap] = []

    async def join(self, chunks: Sequence[Buffer]) -> "_Joined":
        if len(chunks) == 1:
            return _Joined(chunks[0], None)
        size = sum(map(len, chunks))
        memory = None if size < _STAGING_WORTH else self._take(size)
        # Through a view: a bytearray copies what is assigned to its slices twice.
        view = memoryview(bytearray(size) if memory is None else memory)
        position = copied = 0
        for chunk in chunks:
            for start in range(0, len(chunk), _COPY_SLICE):
                piece = memoryview(chunk)[start : start + _COPY_SLICE]
                view[position : position + len(piece)] = piece
                position += len(piece)
                if position - copied >= _COPY_SLICE:
                    # Tens of megabytes at once would stall the loop.
                    copied = position
                    await asyncio.sleep(0)
        return _Joined(view[:size], memory)

    def give_back(self, joined: "_Joined") -> None:
        """Only after a success: a request that failed here may still be sending."""
        if joined.memory is not None and len(joined.data) <= _STAGING_BYTES_MAX:
            self._idle.append(joined.memory)
            self._idle.sort(key=len)
            del self._idle[:-_STAGING_KEPT]

    def _take(self, size: int) -> mmap.mmap:
        for index, memory in enumerate(self._idle):
            if size <= len(memory) <= size * _STAGING_SLACK:
                return self._idle.pop(index)
        # Rounded up, so that the next upload, of nearly the same size, fits as well. What is not filled takes no memory.
        return fresh_pages(-(-size // _STAGING_STEP) * _STAGING_STEP)


class _Joined(msgspec.Struct, frozen=True):
    data: Buffer
    memory: mmap.mmap | None
    """What has to be given back, if anything."""


def _info(found: Any) -> ObjectInfo:  # Any: obstore's ObjectMeta, a dict
    return ObjectInfo(key=found["path"], size=found["size"], modified_ms=int(found["last_modified"].timestamp() * 1000))


class _Translating:
    """obstore's exceptions to ours, for one request about `key`."""

    def __init__(self, request: Request, key: str, settings: ObjectStoreSettings) -> None:
        self._request = request
        self._key = key
        self._settings = settings

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _THEIRS):
            raised = _meaning(self._request, error)
            raise raised(f"{self._key}: {explain(str(error), self._settings)}") from error


_THEIRS: Final = (refused.BaseError, OSError, TimeoutError)


def _meaning(request: Request, error: BaseException) -> type[HeadraceError]:
    text = str(error)
    # A bucket that is gone is an outage, and no word about any object. Refused credentials are an operator's to renew
    # while we wait: giving up would not help anybody.
    if is_without_bucket(text):
        return StoreUnavailable
    status = status_in(text)
    if status is None:
        # obstore's own stores speak no HTTP: what they find or do not find is only in the exception's type.
        status = next((code for theirs, code in _WITHOUT_HTTP if isinstance(error, theirs)), 0)
    elif status == 404 and request is Request.DELETE and _MANY_DELETED in text:
        return StoreUnavailable
    return meaning_of(request, status)


_WITHOUT_HTTP: Final = ((refused.AlreadyExistsError, 412), ((refused.NotFoundError, FileNotFoundError), 404))
_MANY_DELETED: Final = "Error performing POST"
"""S3 deletes a page of keys by a request to the bucket: a 404 to that says nothing of the keys."""
