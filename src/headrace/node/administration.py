"""The administrative API's view of this node: the tier, the pipeline process and the broker, introduced to the admin door."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headrace.admin.api.calls import (
    Parts,
    StorageState,
    StoredObject,
    StoredSegment,
    VerifyResult,
)
from headrace.admin.api.operations import Operations, Progress
from headrace.admin.login.entrance import Entrance, EntranceSettings
from headrace.admin.session import Health
from headrace.blob.metrics import BlobMetrics
from headrace.blob.prices import PRICES_FROM, dollars_of, storage_dollars_per_month
from headrace.broker.broker_watch import BrokerWatch, answers, read_controllers
from headrace.broker.browse import RecordTimes
from headrace.broker.groups.lag import LagTrends
from headrace.broker.groups.standings import Standings
from headrace.broker.services import Broker
from headrace.clock import Clock
from headrace.config.openness import asks_for_login
from headrace.config.settings import NodeSettings
from headrace.control.metastore import Metastore
from headrace.doors.kafka.errors import code_of
from headrace.errors import TimedOut, UnsupportedOperation
from headrace.log.store import LogStore
from headrace.node.maintenance import opened_bucket
from headrace.node.metrics import register_pipeline_metrics
from headrace.node.pipeline import PipelineBeside
from headrace.node.pipelines import PipelinesView
from headrace.node.searching import TopicSearch
from headrace.node.sql import Queries
from headrace.telemetry.history import History
from headrace.tier.inventory import load_inventory
from headrace.tier.service import Tier
from headrace.tier.verify import Verified, size_of, verify

_HOUR_MS: Final = 3600 * 1000
_MONTH_MS: Final = 30 * 24 * _HOUR_MS


def administration(
    broker: Broker,
    *,
    settings: NodeSettings,
    tier: Tier,
    logs: LogStore,
    blob_metrics: BlobMetrics,
    metastore: Metastore,
    health: Callable[[], Health],
    is_store_down: Callable[[], bool],
    history: History,
    lag_trends: LagTrends,
    pipeline: PipelineBeside,
) -> Parts:
    view = PipelinesView(settings, broker.clock, pipeline)
    register_pipeline_metrics(broker.metrics, view.read)
    return Parts(
        broker=broker,
        storage=TierView(
            settings,
            tier=tier,
            logs=logs,
            blob_metrics=blob_metrics,
            clock=broker.clock,
            is_store_down=is_store_down,
        ),
        health=health,
        watch=BrokerWatch(
            broker.identity, broker.clock, probe=answers, read_controllers=lambda: read_controllers(metastore)
        ),
        pipelines=view,
        gate=entrance_of(broker, settings),
        operations=Operations(broker.clock),
        record_times=RecordTimes(broker.fetch),
        history=history,
        lag_trends=lag_trends,
        standings=Standings(broker.topics, broker.offsets, broker.clock),
        search=TopicSearch(settings, broker=broker, tier=tier).run,
        partitions_default=settings.kafka.num_partitions,
        queries=Queries(settings, pipeline),
        kafka_error=code_of,
    )


def entrance_of(broker: Broker, settings: NodeSettings) -> Entrance:
    (listener,) = settings.listeners_of("admin")
    return Entrance(
        broker.access,
        EntranceSettings(
            is_login_asked=asks_for_login(listener, settings),
            is_open=settings.security.open or listener.open,
            principal=listener.principal,
            is_plain_allowed=settings.security.plain_insecure,
            session_ms=settings.admin.session_ms,
        ),
        broker.clock,
        Path(settings.server.data_dir),
    )


class TierView:
    """What `admin` asks as its `Storage`."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        tier: Tier,
        logs: LogStore,
        blob_metrics: BlobMetrics,
        clock: Clock,
        is_store_down: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._tier = tier
        self._logs = logs
        self._blob_metrics = blob_metrics
        self._clock = clock
        self._is_store_down = is_store_down
        self._started_ms = clock.monotonic_ms()

    def state(self) -> StorageState:
        requests = {name: counts.requests for name, counts in self._blob_metrics.operations.items()}
        dollars = dollars_of(requests)
        # A start asks much of the store at once: an hour goes by before its requests count for a month's.
        elapsed_ms = max(_HOUR_MS, self._clock.monotonic_ms() - self._started_ms)
        table, wal = self._tier.table, self._logs.wal
        return StorageState(
            address=self._settings.object_store.address,
            is_down=self._is_store_down(),
            object_count=table.object_count,
            object_bytes=table.object_bytes,
            dead_bytes=table.dead_bytes,
            manifests_pending=self._tier.metrics.tier_manifests_pending,
            spill_bytes=self._tier.metrics.tier_spill_bytes,
            wal_capacity_bytes=wal.data_size,
            wal_used_bytes=max(0, wal.data_size - wal.room_bytes),
            arena_bytes=self._logs.memory.used_bytes,
            requests=requests,
            sent_bytes=self._blob_metrics.object_store_sent_bytes_total,
            received_bytes=self._blob_metrics.object_store_received_bytes_total,
            request_dollars=dollars,
            month_dollars=storage_dollars_per_month(table.object_bytes) + dollars * _MONTH_MS / elapsed_ms,
            prices_from=PRICES_FROM,
        )

    def objects(self) -> Iterator[StoredObject]:
        return (
            StoredObject(
                key=held.key, size_bytes=held.size, dead_bytes=held.dead_bytes, partition_count=len(held.places)
            )
            for _, held in self._tier.table.objects()
        )

    def segments(self, topic_id: bytes, partition: int) -> Iterator[StoredSegment]:
        return (
            StoredSegment(
                partition=partition,
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                record_count=each.record_count,
                size_bytes=each.length,
                max_timestamp_ms=each.max_timestamp_ms,
                leader_epoch=each.leader_epoch,
                committed_ms=each.committed_ms,
                key=each.key,
                position=each.position,
            )
            for each in tuple(self._tier.table.of((topic_id, partition)))
        )

    async def verify(self, progress: Progress) -> VerifyResult:
        """In a thread with a loop of its own: every byte is read and checked, which is not for the broker's loop."""
        if self._settings.object_store.type == "memory":
            raise UnsupportedOperation("object_store.type=memory has nothing that could be damaged at rest")
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def advance(size: int) -> None:
            if cancelled.is_set():
                raise TimedOut("cancelled")
            loop.call_soon_threadsafe(_advance, progress, size)

        async def check() -> Verified:
            async with opened_bucket(self._settings) as blobs:
                inventory = await load_inventory(blobs)
                progress.total = size_of(inventory)
                return await verify(blobs, inventory, on_progress=advance)

        try:
            found = await asyncio.to_thread(lambda: asyncio.run(check()))
        finally:
            cancelled.set()
        return VerifyResult(
            object_count=found.object_count,
            segment_count=found.segment_count,
            record_count=found.record_count,
            size_bytes=found.size_bytes,
            hole_count=found.hole_count,
            findings=tuple(f"{each.key}: {each.problem}" for each in found.findings),
        )


def _advance(progress: Progress, size: int) -> None:
    progress.done += size
