"""Takes a sample of the node's numbers every ten seconds, for charts that need no Prometheus."""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.blob.metrics import BlobMetrics
from headrace.blob.prices import dollars_of
from headrace.broker.services import Broker
from headrace.broker.slices import gently
from headrace.clock import Clock
from headrace.log.store import LogStore
from headrace.telemetry.history import STEP_MS, History, Series
from headrace.tier.service import Tier

_PROBES: Final = 10
"""Looks at the event loop's lateness within one step."""


class Chronicle:
    def __init__(self, broker: Broker, *, logs: LogStore, tier: Tier, blob_metrics: BlobMetrics) -> None:
        self._clock: Clock = broker.clock
        self._logs = logs
        self._late_ms = 0.0
        self._exposed_bytes = 0
        self.history = History(
            _series(
                broker, tier, blob_metrics, late_ms=lambda: self._late_ms, exposed_bytes=lambda: self._exposed_bytes
            )
        )

    async def run(self) -> None:
        self.history.sample(self._clock.now_ms())
        while True:
            self._late_ms = await _lateness_ms()
            self._exposed_bytes = sum([each.unuploaded_bytes async for each in gently(list(self._logs.partitions()))])
            self.history.sample(self._clock.now_ms())


async def _lateness_ms() -> float:
    """One step long; gives how late the loop was at worst: what a request had to wait at least."""
    loop = asyncio.get_running_loop()
    worst = 0.0
    for _ in range(_PROBES):
        due = loop.time() + STEP_MS / 1000 / _PROBES
        await asyncio.sleep(due - loop.time())
        worst = max(worst, loop.time() - due)
    return worst * 1000


def _series(
    broker: Broker,
    tier: Tier,
    blobs: BlobMetrics,
    *,
    late_ms: Callable[[], float],
    exposed_bytes: Callable[[], float],
) -> list[Series]:
    produce, fetch = broker.produce, broker.fetch
    return [
        Series(name="bytes_in", sentence="produced", kind="counter", unit="bytes", read=lambda: produce.bytes_total),
        Series(name="bytes_out", sentence="consumed", kind="counter", unit="bytes", read=lambda: fetch.bytes_total),
        Series(name="records_in", sentence="produced", kind="counter", unit="records", read=lambda: produce.records_total),
        Series(name="records_out", sentence="consumed", kind="counter", unit="records", read=lambda: fetch.records_total),
        Series(name="exposed_bytes", sentence="Bytes on this disk only", kind="gauge", unit="bytes", read=exposed_bytes),
        Series(name="bucket_bytes", sentence="Bytes in object storage", kind="gauge", unit="bytes", read=lambda: tier.table.object_bytes),
        Series(name="requests", sentence="Requests to object storage", kind="counter", unit="count",
               read=lambda: sum(each.requests for each in blobs.operations.values())),
        Series(name="request_dollars", sentence="Cost of these requests at list prices", kind="counter", unit="dollars",
               read=lambda: dollars_of({name: each.requests for name, each in blobs.operations.items()})),
        Series(name="late_ms", sentence="Longest wait for the event loop", kind="gauge", unit="ms", read=late_ms),
    ]  # fmt: skip
