"""Takes a sample of the node's numbers every ten seconds, for charts that need no Prometheus.

The last day is written to `history.bin` every few minutes and at the end, whole and renamed into place. What a crash loses of it is
a few minutes of a chart; a file that is damaged is passed over, and said.
"""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.blob.metrics import BlobMetrics
from headrace.blob.prices import dollars_of
from headrace.broker.groups.lag import SAMPLE_MS, LagTrends
from headrace.broker.services import Broker
from headrace.broker.slices import gently
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.log.store import LogStore
from headrace.telemetry.history import STEP_MS, History, Series
from headrace.telemetry.logging import get_logger
from headrace.tier.service import Tier

HISTORY_FILE: Final = "history.bin"
_WRITE_EVERY: Final = 30
"""Samples: five minutes."""
_PROBES: Final = 10
"""Looks at the event loop's lateness within one step."""

log = get_logger(__name__)


class Chronicle:
    def __init__(
        self, broker: Broker, *, logs: LogStore, tier: Tier, blob_metrics: BlobMetrics, directory: Path
    ) -> None:
        self._path = directory / HISTORY_FILE
        self._clock: Clock = broker.clock
        self._logs = logs
        self._late_ms = 0.0
        self._exposed_bytes = 0
        self.lag_trends = LagTrends(broker.topics, broker.offsets)
        self.history = History(
            _series(
                broker, tier, blob_metrics, late_ms=lambda: self._late_ms, exposed_bytes=lambda: self._exposed_bytes
            )
        )

    async def run(self) -> None:
        self._load()
        self.history.sample(self._clock.now_ms())
        await self.lag_trends.sample(self._clock.now_ms())
        for number in itertools.count(1):
            self._late_ms = await _lateness_ms()
            self._exposed_bytes = sum([each.unuploaded_bytes async for each in gently(list(self._logs.partitions()))])
            self.history.sample(self._clock.now_ms())
            if not number % (SAMPLE_MS // STEP_MS):
                await self.lag_trends.sample(self._clock.now_ms())
            if not number % _WRITE_EVERY:
                await asyncio.to_thread(self._write, self.history.dump())

    def stop(self) -> None:
        """The last samples, once nobody takes any more."""
        self._write(self.history.dump())

    def _load(self) -> None:
        try:
            self.history.load(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, HeadraceError, ValueError) as error:
            log.warning("charts begin anew", file=str(self._path), reason=str(error))

    def _write(self, data: bytes) -> None:
        """Not flushed: a chart is not worth a wait for the disk."""
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(self._path)
        except OSError as error:
            log.warning("charts not kept", file=str(self._path), reason=str(error))


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
