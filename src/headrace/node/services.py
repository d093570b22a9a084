"""What doors call, over a log that is open: producing, Wasm modules, coordinators, and `Broker`, the bundle of them.

Stopped with the node: whatever has to be is pushed on the node's own stack, in the order in which it was made.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import structlog

from headrace.blob.store import BlobStore
from headrace.broker.access.service import Access
from headrace.broker.audit_topic import AuditTopic
from headrace.broker.coordinators import Coordinators, build_coordinators
from headrace.broker.dead_letters import DeadLetters
from headrace.broker.fetch import Fetch
from headrace.broker.identity import Identity
from headrace.broker.metrics import register_broker_metrics
from headrace.broker.module_logs import ModuleLogs
from headrace.broker.offset_projection import no_guard
from headrace.broker.produce import Produce
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.services import Broker
from headrace.broker.topics import Topics
from headrace.broker.transforming import Transforming
from headrace.config.settings import NodeSettings
from headrace.control.cluster import Cluster
from headrace.errors import HeadraceError, Unavailable
from headrace.log.store import LogStore
from headrace.node.parts import NodeParts
from headrace.node.peering import leads_offsets
from headrace.telemetry.metrics import Metrics
from headrace.telemetry.problems import Problems
from headrace.tier.keeping import Keeping
from headrace.tier.plans import HOLD
from headrace.transforms.modules import Modules
from headrace.transforms.service import Transforms

_MODULES_S: Final = 1800.0

log = structlog.get_logger(__name__)


class Services:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        identity: Identity,
        cluster: Cluster,
        store: LogStore,
        topics: Topics,
        blobs: BlobStore,
        access: Access,
        parts: NodeParts,
        metrics: Metrics,
        problems: Problems,
        running: AsyncExitStack,
        on_fault: Callable[[HeadraceError], None],
    ) -> None:
        """Coordinators have read nothing yet: `coordinators.start` does it, or the opening of their partitions."""
        self._settings = settings
        self._cluster = cluster
        self._parts = parts
        self._metrics = metrics
        self._running = running
        self._produce = Produce(store, parts.clock)
        self._transforms = self._build_transforms(store, topics, blobs)
        producer_ids = ProducerIds(cluster)
        self.coordinators = self._build_coordinators(topics, producer_ids, problems, on_fault)
        self.broker = Broker(
            identity=identity,
            topics=topics,
            produce=self._produce,
            fetch=Fetch(parts.clock),
            producer_ids=producer_ids,
            offsets=self.coordinators.offsets,
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            participation=self.coordinators.participation,
            forwarding=self.coordinators.forwarding,
            clock=parts.clock,
            metrics=metrics,
            transforms=self._transforms,
            chance=parts.chance,
            access=access,
        )

    def open(self) -> None:
        """Before the doors: they serve from now on."""
        register_broker_metrics(self._metrics, self.broker)
        self._running.push_async_callback(self.broker.fetch.stop)

    # Any: what is sent to a coroutine and what it yields, as asyncio has it
    def works(self, keeping: Keeping) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs beside the doors for as long as they are open."""
        topics, audit = self.broker.topics, self.broker.access.audit
        yield self._keep_modules(keeping)
        yield ModuleLogs(self._transforms, topics, self._produce, self._parts.clock).keep_forever()
        if audit is not None:
            yield AuditTopic(audit, topics, self.broker.forwarding).keep_forever()

    def loading(self) -> Iterator[str]:
        """A sentence about each coordinator that answers nobody yet."""
        for part in self.coordinators.unloaded:
            yield f"{part}: their state is still being read, clients are told to wait"

    def _build_transforms(self, store: LogStore, topics: Topics, blobs: BlobStore) -> Transforms:
        clock = self._parts.clock
        modules = Modules(self._cluster, blobs, clock, self._parts.chance)
        transforms = Transforms(self._settings.wasm, modules, clock)
        self._metrics.register(transforms.metrics)
        self._produce.transforming = Transforming(
            transforms, topics, DeadLetters(topics, store, clock), clock, wait_for_log=store.room_for
        )
        self._running.callback(transforms.close)
        self._running.push_async_callback(self._produce.transforming.stop)
        return transforms

    def _build_coordinators(
        self,
        topics: Topics,
        producer_ids: ProducerIds,
        problems: Problems,
        on_fault: Callable[[HeadraceError], None],
    ) -> Coordinators:
        coordinators = build_coordinators(
            topics=topics,
            produce=self._produce,
            producer_ids=producer_ids,
            metastore=self._cluster.store,
            clock=self._parts.clock,
            group_settings=self._settings.group,
            transaction_settings=self._settings.transaction,
            on_fault=on_fault,
            problems=problems,
            guard=partial(leads_offsets, self._cluster) if self._parts.is_shared else no_guard,
        )
        self._running.push_async_callback(coordinators.stop)
        return coordinators

    async def _keep_modules(self, keeping: Keeping) -> None:
        """Delete the bytes of modules that are gone; by one broker of several, and not while the metastore is held."""
        while True:
            await asyncio.sleep(_MODULES_S)
            if not keeping.is_keeper():
                continue
            try:
                if await self._cluster.store.get(HOLD) is None:
                    await self._transforms.modules.collect()
            except Unavailable as error:
                log.warning("bytes of removed modules are collected later", reason=str(error))
