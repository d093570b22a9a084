"""Retries, time-outs, the circuit and the counting, over a store that fails on command."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from headrace.blob.memory import MemoryBlobStore
from headrace.blob.metrics import BlobMetrics
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import Buffer, ObjectInfo, put_once
from headrace.errors import AlreadyExists, ObjectNotFound, StoreUnavailable
from headrace.telemetry.metrics import Metrics


class HandClock:
    def __init__(self) -> None:
        self.at_ms = 1_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


class FailingStore(MemoryBlobStore):
    """Fails the next `failures` requests; with `is_lossy`, after having done them."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.failures = 0
        self.is_lossy = False
        self.is_hanging = False
        self.requests = 0

    async def _maybe_fail(self) -> None:
        self.requests += 1
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("503")

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        if self.is_lossy:
            await super().put_if_absent(key, chunks)
        await self._maybe_fail()
        if not self.is_lossy:
            await super().put_if_absent(key, chunks)

    async def get(self, key: str) -> Buffer:
        await self._maybe_fail()
        return await super().get(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        given = 0
        async for info in super().list(prefix, after=after):
            if given == 700:
                await self._maybe_fail()
            given += 1
            yield info


class Bench:
    def __init__(self, **settings: int) -> None:
        self.clock = HandClock()
        self.inner = FailingStore(self.clock)
        self.metrics = BlobMetrics()
        self.slept: list[float] = []
        self.store = RetryingBlobStore(
            self.inner,
            ObjectStoreSettings(type="memory", **settings),  # type: ignore[arg-type]
            clock=self.clock,
            metrics=self.metrics,
            chance=lambda: 0.5,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.at_ms += int(seconds * 1000)


async def test_transient_failures_are_retried_with_growing_pauses() -> None:
    bench = Bench(retry_count=3, retry_backoff_ms=100)
    await bench.store.put("key", [b"abc"])
    bench.inner.failures = 3
    assert bytes(await bench.store.get("key")) == b"abc"
    assert bench.slept == [0.05, 0.1, 0.2]
    assert bench.metrics.object_store_retries_total == 3
    assert bench.metrics.operations["get"].requests == 4
    assert bench.metrics.operations["get"].failures == 3
    assert bench.metrics.object_store_received_bytes_total == 3


async def test_the_last_failure_is_the_callers() -> None:
    bench = Bench(retry_count=2)
    bench.inner.failures = 9
    with pytest.raises(StoreUnavailable):
        await bench.store.get("key")
    assert bench.inner.requests == 3


async def test_a_definite_answer_is_not_retried() -> None:
    bench = Bench()
    with pytest.raises(ObjectNotFound):
        await bench.store.get("no")
    assert bench.inner.requests == 1
    assert bench.slept == []


@pytest.mark.requirement("R3.46")
async def test_a_lost_reply_to_a_create_is_recognised() -> None:
    bench = Bench()
    bench.inner.is_lossy, bench.inner.failures = True, 1
    assert not await put_once(bench.store, "manifests/1", [b"x"])
    bench.inner.failures = 1
    with pytest.raises(AlreadyExists):
        await bench.store.put_if_absent("manifests/2", [b"x"])


async def test_circuit_opens_then_probes_then_closes() -> None:
    bench = Bench(retry_count=0, circuit_failures=2, circuit_open_ms=1000)
    await bench.store.put("key", [b"x"])
    bench.inner.failures = 3
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await bench.store.get("key")
    assert bench.store.is_down
    assert bench.metrics.object_store_circuit_open == 1
    with pytest.raises(StoreUnavailable, match="is down"):
        await bench.store.get("key")
    assert bench.inner.requests == 2
    bench.clock.at_ms += 1000
    assert not bench.store.is_down, "who only asks must learn that it is time to try"
    with pytest.raises(StoreUnavailable, match="503"):
        await bench.store.get("key")
    assert bench.store.is_down
    bench.clock.at_ms += 1000
    assert bytes(await bench.store.get("key")) == b"x"
    assert not bench.store.is_down
    assert bench.metrics.object_store_circuit_open == 0


async def test_a_request_without_answer_times_out() -> None:
    bench = Bench(retry_count=0, request_timeout_ms=100)
    bench.inner.is_hanging = True
    with pytest.raises(StoreUnavailable, match="no answer"):
        await bench.store.get("key")


async def test_a_cancelled_probe_does_not_hold_the_circuit() -> None:
    bench = Bench(retry_count=0, circuit_failures=1, circuit_open_ms=10)
    bench.inner.failures = 1
    with pytest.raises(StoreUnavailable):
        await bench.store.get("key")
    bench.clock.at_ms += 10
    bench.inner.is_hanging = True
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.store.get("key"), 0.01)
    bench.inner.is_hanging = False
    with pytest.raises(ObjectNotFound):
        await bench.store.get("key")
    assert not bench.store.is_down


async def test_a_listing_goes_on_where_it_failed() -> None:
    bench = Bench()
    keys = [f"a/{number:05d}" for number in range(2500)]
    for key in keys:
        await bench.store.put(key, [b""])
    bench.inner.failures = 2
    assert [info.key async for info in bench.store.list("a/")] == keys


async def test_counts_are_shown() -> None:
    bench = Bench()
    metrics = Metrics()
    bench.metrics.register(metrics)
    await bench.store.put("key", [b"abc"])
    text = metrics.render().decode()
    assert 'headrace_object_store_requests_total{operation="put"} 1.0' in text
    assert "headrace_object_store_sent_bytes_total 3.0" in text
