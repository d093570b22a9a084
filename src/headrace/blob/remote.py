"""S3, GCS and whatever speaks like them, through obstore.

obstore's own retries are switched off: `retrying.py` does them, where they can be counted and tested.
Single PUTs up to a size, multipart uploads above; `put_if_absent` is always a single PUT with `If-None-Match: *`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import obstore
from obstore import exceptions as refused
from obstore.store import GCSStore, S3Store

from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import Buffer, ObjectInfo
from headrace.errors import AlreadyExists, HeadraceError, ObjectNotFound, StoreUnavailable

_SINGLE_PUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""One request costs one PUT; above this a failed one would repeat too much."""
_PART_BYTES: Final = 16 * 1024 * 1024
_PARTS_IN_FLIGHT: Final = 4
_COPY_SLICE: Final = 1024 * 1024
_DELETE_KEYS_MAX: Final = 1000
"""Most keys one DeleteObjects takes."""


class RemoteBlobStore:
    def __init__(self, store: Any) -> None:  # Any: obstore's stores share no public base class
        self._store = store

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        data = await _joined(chunks)
        with _translating(key):
            await obstore.put_async(
                self._store,
                key,
                data,
                use_multipart=len(data) > _SINGLE_PUT_BYTES_MAX,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_IN_FLIGHT,
            )

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        with _translating(key):
            await obstore.put_async(self._store, key, await _joined(chunks), mode="create", use_multipart=False)

    async def get(self, key: str) -> Buffer:
        with _translating(key):
            found = await obstore.get_async(self._store, key)
            return memoryview(await found.bytes_async())

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        with _translating(key):
            data = memoryview(await obstore.get_range_async(self._store, key, start=position, length=length))
        if len(data) != length:
            raise StoreUnavailable(f"{key}: got {len(data)} of {length} bytes at {position}")
        return data

    async def head(self, key: str) -> ObjectInfo:
        with _translating(key):
            return _info(await obstore.head_async(self._store, key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        assert prefix == "" or prefix.endswith("/")
        with _translating(prefix):
            async for page in obstore.list(self._store, prefix=prefix or None, offset=after or None):
                for found in page:
                    yield _info(found)

    async def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _DELETE_KEYS_MAX):
            page = list(keys[start : start + _DELETE_KEYS_MAX])
            try:
                with _translating(page[0]):
                    await obstore.delete_async(self._store, page)
            except ObjectNotFound:
                # S3 does not mind a missing key, GCS answers 404: the page is not known to be done.
                await self._delete_singly(page)

    async def _delete_singly(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with _translating(key):
                    await obstore.delete_async(self._store, key)
            except ObjectNotFound:
                continue

    async def close(self) -> None:
        pass


def open_s3(settings: ObjectStoreSettings) -> RemoteBlobStore:
    config: dict[str, Any] = {  # Any: obstore's configuration mixes types
        "region": settings.s3_region,
        "virtual_hosted_style_request": not settings.s3_path_style,
        "unsigned_payload": not settings.s3_sign_payload,
    }
    if settings.s3_endpoint:
        config["endpoint"] = settings.s3_endpoint
    return RemoteBlobStore(
        S3Store(
            settings.s3_bucket,
            prefix=settings.s3_prefix or None,
            config=config,
            client_options=_client_options(settings, settings.s3_endpoint),
            retry_config={"max_retries": 0},
        )
    )


def open_gcs(settings: ObjectStoreSettings) -> RemoteBlobStore:
    config: dict[str, Any] = {}  # Any: as above
    if settings.gcs_endpoint:
        config["service_account_key"] = _emulator_account(settings.gcs_endpoint)
    return RemoteBlobStore(
        GCSStore(
            settings.gcs_bucket,
            prefix=settings.gcs_prefix or None,
            config=config,
            client_options=_client_options(settings, settings.gcs_endpoint),
            retry_config={"max_retries": 0},
        )
    )


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


def _client_options(settings: ObjectStoreSettings, endpoint: str | None) -> dict[str, Any]:  # Any: as above
    return {
        "timeout": timedelta(milliseconds=settings.request_timeout_ms),
        "connect_timeout": timedelta(milliseconds=settings.connect_timeout_ms),
        "allow_http": bool(endpoint and endpoint.startswith("http://")),
    }


async def _joined(chunks: Sequence[Buffer]) -> Buffer:
    """obstore takes an iterable only as a multipart upload, so several chunks become one.

    Copied a slice at a time: tens of megabytes at once would stall the loop.
    """
    if len(chunks) == 1:
        return chunks[0]
    whole = bytearray(sum(map(len, chunks)))
    position = copied = 0
    for chunk in chunks:
        whole[position : position + len(chunk)] = chunk
        position += len(chunk)
        if position - copied >= _COPY_SLICE:
            copied = position
            await asyncio.sleep(0)
    return whole


def _info(found: Any) -> ObjectInfo:  # Any: obstore's ObjectMeta, a dict
    return ObjectInfo(key=found["path"], size=found["size"], modified_ms=int(found["last_modified"].timestamp() * 1000))


class _translating:
    """obstore's exceptions to ours, for one request about `key`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HeadraceError) or error is None:
            return
        for theirs, ours in _TRANSLATIONS:
            if isinstance(error, theirs):
                raise ours(f"{self._key}: {error}") from error


_TRANSLATIONS: Final[tuple[tuple[Any, Callable[[str], HeadraceError]], ...]] = (  # Any: obstore is untyped here
    (refused.AlreadyExistsError, AlreadyExists),
    (refused.PreconditionError, AlreadyExists),
    ((refused.NotFoundError, FileNotFoundError), ObjectNotFound),
    # Refused credentials are an operator's to renew while we wait: giving up would not help anybody.
    ((refused.BaseError, OSError, TimeoutError), StoreUnavailable),
)
