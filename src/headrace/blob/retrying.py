"""Patience and self-control around any `BlobStore`: time-outs, retries with jitter, a circuit, and counting.

Only `StoreUnavailable` is retried. A retried `put_if_absent` may find its own first attempt, whose reply was
lost: it then raises `AlreadyExists` like any other, and `put_once` compares. Pauses use the injected sleep and
chance, so that a simulated run is repeatable.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from headrace.blob.circuit import Circuit
from headrace.blob.metrics import BlobMetrics
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import BlobStore, Buffer, ObjectInfo
from headrace.clock import Clock
from headrace.errors import HeadraceError, StoreUnavailable
from headrace.file_range import OpenFile

_BACKOFF_MS_MAX: Final = 10_000
_LIST_PAGE: Final = 1000
_T = TypeVar("_T")


class RetryingBlobStore:
    def __init__(
        self,
        store: BlobStore,
        settings: ObjectStoreSettings,
        *,
        clock: Clock,
        metrics: BlobMetrics,
        chance: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`chance` gives numbers in [0, 1); a seeded source of them repeats a run."""
        self._store = store
        self.open_file: Callable[[str], OpenFile] | None = getattr(store, "open_file", None)
        """Where objects are files of this machine: one of them, to be read without this store."""
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._chance = chance
        self._sleep = sleep
        self._circuit = Circuit(failures_max=settings.circuit_failures, open_ms=settings.circuit_open_ms)

    @property
    def is_down(self) -> bool:
        """Whether a request would fail at once. Background work waits then, and finds out by trying after the pause."""
        return self._circuit.is_blocking(self._clock.monotonic_ms())

    def note_down(self) -> None:
        """It was found down: requests fail at once until the circuit's pause is over."""
        self._circuit.open(self._clock.monotonic_ms())
        self._metrics.object_store_circuit_open = 1

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._attempt("put", lambda: self._store.put(key, chunks))
        self._metrics.object_store_sent_bytes_total += sum(map(len, chunks))

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self._attempt("put_if_absent", lambda: self._store.put_if_absent(key, chunks))
        self._metrics.object_store_sent_bytes_total += sum(map(len, chunks))

    async def get(self, key: str) -> Buffer:
        return self._received(await self._attempt("get", lambda: self._store.get(key)))

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        data = await self._attempt("get_range", lambda: self._store.get_range(key, position, length))
        return self._received(data)

    async def head(self, key: str) -> ObjectInfo:
        return await self._attempt("head", lambda: self._store.head(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Page by page: a listing that fails halfway goes on behind the last key it gave."""
        last = after
        while True:
            page = await self._attempt("list", partial(_page, self._store, prefix, last))
            for info in page:
                yield info
                last = info.key
            if len(page) < _LIST_PAGE:
                return

    async def delete(self, keys: Sequence[str]) -> None:
        await self._attempt("delete", lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()

    async def _attempt(self, operation: str, request: Callable[[], Awaitable[_T]]) -> _T:
        for retry in range(self._settings.retry_count + 1):
            if retry:
                self._metrics.object_store_retries_total += 1
                await self._sleep(self._backoff_ms(retry) / 1000)
            try:
                return await self._once(operation, request)
            except StoreUnavailable:
                if retry == self._settings.retry_count:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _backoff_ms(self, retry: int) -> float:
        """Full jitter: brokers that failed together must not come back together."""
        ceiling = min(_BACKOFF_MS_MAX, self._settings.retry_backoff_ms << (retry - 1))
        return max(1.0, ceiling * self._chance())

    async def _once(self, operation: str, request: Callable[[], Awaitable[_T]]) -> _T:
        if not self._circuit.admits(self._clock.monotonic_ms()):
            raise StoreUnavailable("the object store is down; waiting before the next attempt")
        counts = self._metrics.operations[operation]
        counts.requests += 1
        started_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                result = await request()
        except (StoreUnavailable, TimeoutError) as error:
            counts.failures += 1
            self._note_failure()
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(f"no answer within {self._settings.request_timeout_ms} ms") from error
            raise
        except HeadraceError:
            # The store works: it just said no.
            self._note_success()
            raise
        except BaseException:
            self._circuit.abandoned()
            raise
        self._note_success()
        self._note_time(operation, self._clock.monotonic_ms() - started_ms)
        return result

    def _note_failure(self) -> None:
        self._circuit.failed(self._clock.monotonic_ms())
        self._metrics.object_store_circuit_open = int(self.is_down)

    def _note_success(self) -> None:
        self._circuit.succeeded()
        self._metrics.object_store_circuit_open = 0

    def _note_time(self, operation: str, taken_ms: int) -> None:
        if operation.startswith("put"):
            self._metrics.object_store_put_ms.record(taken_ms)
        elif operation.startswith("get"):
            self._metrics.object_store_get_ms.record(taken_ms)

    def _received(self, data: Buffer) -> Buffer:
        self._metrics.object_store_received_bytes_total += len(data)
        return data


async def _page(store: BlobStore, prefix: str, after: str) -> list[ObjectInfo]:
    page: list[ObjectInfo] = []
    async for info in store.list(prefix, after=after):
        page.append(info)
        if len(page) == _LIST_PAGE:
            break
    return page
