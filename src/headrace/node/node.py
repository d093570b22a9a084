"""One node: every part built in order, started, and stopped in the reverse order.

Start: lock the directory, open the metastore, register (a new broker epoch), recover the log, take the lead (`node/lead.py`),
load the coordinators, open the doors. No door opens before everything acknowledged in an earlier life can be read, and no
offset is assigned before the epochs that fence that life are durable. Only the coordinators may still be loading by then:
they answer nobody before they have.
"""

import asyncio
import functools
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog
from msgspec.structs import replace
from starlette.types import ASGIApp

from headrace import __version__
from headrace.admin.session import Health
from headrace.admin.session import Node as AdminView
from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import open_store
from headrace.blob.store import BlobStore
from headrace.broker.access.audit import Audit
from headrace.broker.access.service import Access
from headrace.broker.identity import Identity
from headrace.broker.services import Broker
from headrace.broker.shared_topics import SharedTopics
from headrace.broker.topics import Topics
from headrace.config.identity import broker_id
from headrace.config.openness import open_listeners
from headrace.config.settings import NodeSettings
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.doors.kafka.server import KafkaDoor
from headrace.errors import HeadraceError, Unavailable
from headrace.link.party import Party
from headrace.log.homes import first_home
from headrace.log.store import LogStore
from headrace.node.admin_port import open_admin_port
from headrace.node.administration import administration
from headrace.node.broker_configs import broker_configs
from headrace.node.chronicle import Chronicle
from headrace.node.first_administrator import ensure_administrator
from headrace.node.lead import Lead, check_name, former_name
from headrace.node.lookout import Lookout
from headrace.node.metastore import require_no_metastore
from headrace.node.parts import Directory, NodeParts, real_parts
from headrace.node.pipeline import PipelineBeside, plain_address
from headrace.node.services import Services
from headrace.node.sharing import Sharing
from headrace.node.wal_home import settle_home
from headrace.telemetry.metrics import Metrics
from headrace.telemetry.problems import Problems
from headrace.tier.keeping import Keeping
from headrace.tier.plans import Author
from headrace.tier.service import Tier, is_claimed

CACHE_DIRECTORY: Final = "cache"
_HOUSEKEEPING_S: Final = 600.0
_LAST_STATE_S: Final = 2.0
"""What saving the state may take before partitions are moved: without it, opening them takes longer, and that is all."""

log = structlog.get_logger(__name__)


class Node:
    """Built by `start`; whatever was started is stopped, also when a later part fails to start."""

    def __init__(
        self, settings: NodeSettings, *, on_fault: Callable[[HeadraceError], None], parts: NodeParts | None = None
    ) -> None:
        self._settings = settings
        self._on_fault = on_fault
        self._parts = parts or real_parts()
        self._clock = self._parts.clock
        self._running = AsyncExitStack()
        self._started_ms = self._clock.monotonic_ms()
        self._problems = Problems()
        self._is_ready = False
        self._is_stop_clean = False
        self._is_hurried = False
        self._tier: Tier | None = None
        self._blobs: BlobStore | None = None
        self._is_store_down: Callable[[], bool] = lambda: False
        self._services: Services | None = None
        self._sharing: Sharing | None = None
        """Where it is one of several."""
        self.ring_id = b""
        """Of the WAL, once it is open."""
        self._blob_metrics = BlobMetrics()
        self.metrics = Metrics(with_process=True)
        self.endpoints: dict[str, tuple[str, int]] = {}
        self.quic_fingerprint: str | None = None
        """Of the QUIC door's certificate, where there is that door."""
        self._kafka: KafkaDoor | None = None
        self._application: ASGIApp | None = None
        """What the admin door answers with, for who speaks HTTP elsewhere."""

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        data_dir = self._parts.directory(Path(self._settings.server.data_dir))
        data_dir.open()
        self._running.callback(data_dir.close)
        cluster = await self._open_cluster()
        access = await self._load_access(cluster)
        log_settings, taken_ring = self._settings.log, b""
        if self._parts.is_shared:
            require_no_metastore(data_dir.path)
            first = first_home(log_settings, data_dir.path)
            home = await settle_home(cluster, self._broker_name, first, disk=self._parts.disk)
            log_settings, taken_ring = replace(log_settings, wal_path=str(home.directory)), home.taken_ring
        store = LogStore(
            log_settings,
            data_dir=data_dir.path,
            on_fault=self._failed,
            clock=self._clock,
            chance=self._parts.chance,
            disk=self._parts.disk,
            flusher=self._parts.flusher,
            silent_ms=self._parts.silent_ms,
        )
        self.ring_id = store.ring_id
        topics = self._build_topics(cluster, store)
        topics.load()
        tier = await self._load_tier(cluster, store, topics)
        if isinstance(topics, SharedTopics):
            topics.taken_ring = taken_ring
            topics.reclaim()
            await tier.learn(topics.reclaimed)
        await asyncio.to_thread(store.recover)
        lookout = self._build_lookout(store, tier, cluster)
        lookout.note_recovery()
        await self._take_lead(cluster, store, topics, tier)
        if isinstance(topics, SharedTopics):
            self._sharing = self._join(cluster, store, topics, tier)
        services = self._services = self._build_services(cluster, store, topics, access)
        broker, coordinators = services.broker, services.coordinators
        if self._sharing is not None:
            self.endpoints["peer"] = await self._sharing.open_link(self._settings.control, broker, coordinators)
            await self._sharing.start()
        else:
            await coordinators.start()
        services.open()
        for work in (self._keep_house(store), lookout.run(), *services.works(self._keeping(cluster))):
            self._running.callback(asyncio.create_task(work).cancel)
        await self._open_doors(broker)
        if self._parts.has_admin:
            pipeline = self._build_pipeline(data_dir)
            await self._open_admin(cluster, broker, tier, store, pipeline)
            if self._settings.server.pipeline_enable:
                self._start_pipeline(pipeline)
        await self._open_quic(broker)
        data_dir.publish(self.endpoints)
        self._is_ready = True
        log.info("node ready", seconds=round(self._age_ms / 1000, 2), partitions=len(list(store.partitions())))

    def _build_topics(self, cluster: Cluster, store: LogStore) -> Topics:
        defaults = self._settings.topic_defaults.as_topic_config()
        if self._parts.is_shared:
            return SharedTopics(cluster, store, defaults=defaults, own_name=self._broker_name)
        return Topics(cluster, store, defaults=defaults)

    async def _take_lead(self, cluster: Cluster, store: LogStore, topics: Topics, tier: Tier) -> None:
        """Of everything there is; as one of several, of what this broker's WAL has the newest records of."""
        lead = Lead(
            self._broker_name,
            cluster=cluster,
            store=store,
            topics=topics,
            clock=self._clock,
            problems=self._problems,
            is_shared=self._parts.is_shared,
        )
        await lead.take()
        store.start()
        self._running.push_async_callback(self._leave, lead)
        self._running.push_async_callback(store.stop)
        await lead.close_gaps()
        await self._start_tier(topics, tier, is_ring_lost=lead.is_ring_lost)
        await lead.settle()

    async def _leave(self, lead: Lead) -> None:
        """One of several that was fenced has nothing more to say, and hurries to come back."""
        is_fenced = self._parts.is_shared and not self._is_stop_clean
        await (lead.rest() if is_fenced else lead.leave())

    def _join(self, cluster: Cluster, store: LogStore, topics: SharedTopics, tier: Tier) -> Sharing:
        topics.lead_reclaimed()
        return Sharing(
            cluster,
            topics,
            store=store,
            tier=tier,
            own=Party(self._broker_name, self._registered.broker_epoch),
            parts=self._parts,
            running=self._running,
            on_fault=self._failed,
        )

    async def _start_tier(self, topics: Topics, tier: Tier, *, is_ring_lost: bool = False) -> None:
        self._tier = tier
        await tier.start(is_ring_lost=is_ring_lost)
        self._running.push_async_callback(self._stop_tier, tier)
        topics.ceilings.bucket = tier.ceilings
        self._running.push_async_callback(topics.ceilings.stop)

    async def _open_cluster(self) -> Cluster:
        metastore = await self._parts.metastore(self._settings, clock=self._clock)
        self._running.push_async_callback(metastore.close)
        cluster = await Cluster.load(metastore, self._clock, chance=self._parts.chance)
        former = None if self._parts.is_shared else former_name(cluster)
        self._broker_name = broker_id(self._settings.server, former=former, chance=self._parts.chance)
        if not self._parts.is_shared:
            check_name(self._broker_name, cluster)
        endpoint = pb.BrokerRegistration(host="localhost", rack_id=self._settings.server.rack_id or "")
        self._registered = await self._parts.register(cluster, self._broker_name, endpoint)
        if self._parts.is_shared:
            # An earlier life may have changed something until it was fenced by that.
            await cluster.reload()
        return cluster

    async def _load_access(self, cluster: Cluster) -> Access:
        """No door opens before every rule is known."""
        audit = Audit(self._clock, f"/headrace/{self._broker_name}") if self._settings.security.audit_enable else None
        access = Access(self._settings.security, cluster.store, self._parts.chance, self._problems, audit)
        await access.load()
        self._running.callback(asyncio.create_task(access.follow()).cancel)
        await ensure_administrator(access)
        return access

    async def _load_tier(self, cluster: Cluster, store: LogStore, topics: Topics) -> Tier:
        """The object store, and what it already has of every partition: the log replays on top of that."""
        blob_metrics = self._blob_metrics
        blob_metrics.register(self.metrics)
        bucket = self._settings.object_store.address
        blobs = await open_store(
            self._settings.object_store,
            clock=self._clock,
            metrics=blob_metrics,
            is_trusted=await is_claimed(cluster.store, bucket),
            chance=self._parts.chance,
            bare=self._parts.blobs(self._settings.object_store, self._clock),
        )
        self._running.push_async_callback(blobs.close)
        self._is_store_down = lambda: blobs.is_down
        self._blobs = blobs
        tier = Tier(
            self._settings.tier,
            blobs=blobs,
            cluster=cluster,
            logs=store,
            clock=self._clock,
            author=Author(self._broker_name, self._registered.numeric_id, self._registered.broker_epoch),
            on_fault=self._failed,
            is_store_down=self._is_store_down,
            bucket=bucket,
            problems=self._problems,
            open_file=blobs.open_file,
            cache_directory=Path(self._settings.server.data_dir) / CACHE_DIRECTORY,
            chance=self._parts.chance,
            sequence=self._parts.sequence,
            keeping=self._keeping(cluster),
        )
        tier.register_metrics(self.metrics)
        topics.on_removed.append(lambda topic: tier.forget_topic(topic.id))
        await tier.load()
        return tier

    def _keeping(self, cluster: Cluster) -> Keeping:
        """Of several, the first by number of those that serve keeps house."""
        if not self._parts.is_shared:
            return Keeping()

        def serving() -> list[int]:
            return [each.numeric_id for each in cluster.members.values() if each.state == pb.ACTIVE]

        return Keeping(
            is_alone=False,
            is_keeper=lambda: self._registered.numeric_id == min(serving(), default=-1),
            broker_count=lambda: len(serving()),
        )

    def _build_lookout(self, store: LogStore, tier: Tier, cluster: Cluster) -> Lookout:
        return Lookout(
            self._problems,
            logs=store,
            tier=tier,
            store=cluster.store,
            clock=self._clock,
            upload_interval_ms=self._settings.tier.upload_interval_ms,
            is_store_down=self._is_store_down,
        )

    def _build_services(self, cluster: Cluster, store: LogStore, topics: Topics, access: Access) -> Services:
        assert self._blobs is not None
        return Services(
            self._settings,
            identity=self._build_identity(cluster),
            cluster=cluster,
            store=store,
            topics=topics,
            blobs=self._blobs,
            access=access,
            parts=self._parts,
            metrics=self.metrics,
            problems=self._problems,
            running=self._running,
            on_fault=self._failed,
        )

    def _build_identity(self, cluster: Cluster) -> Identity:
        return Identity(
            cluster_id=cluster.cluster_id,
            broker_id=self._registered.numeric_id,
            broker_name=self._broker_name,
            broker_epoch=self._registered.broker_epoch,
            rack=self._settings.server.rack_id,
            data_dir=str(self._settings.server.data_dir),
            bucket=self._settings.object_store.address,
            addresses=self.endpoints,
            registered=lambda: cluster.members if self._parts.is_shared else {},
            is_gone=lambda name: self._sharing is not None and self._sharing.is_gone(name),
            left=lambda: {} if self._sharing is None else self._sharing.left(),
            configs=functools.cache(lambda: broker_configs(self._settings, broker_id=self._registered.numeric_id)),
        )

    async def _open_doors(self, broker: Broker) -> None:
        for open_door in self._parts.doors:
            door = open_door(self._settings, broker)
            self._running.push_async_callback(door.stop)
            await door.start()
            if isinstance(door, KafkaDoor):
                self._kafka = door
        self._say_if_open()

    async def _open_quic(self, broker: Broker) -> None:
        if self._parts.quic is None or self._kafka is None or not self._settings.listeners_of("quic"):
            return
        door = self._parts.quic(self._settings, broker, frames=self._kafka, application=self._application)
        self._running.push_async_callback(door.stop)
        await door.start()
        self.quic_fingerprint = door.fingerprint

    def _say_if_open(self) -> None:
        if listeners := open_listeners(self._settings):
            sentence = (
                "anybody who reaches this node may read, change and delete everything: nobody is asked who they are at "
            )
            self._problems.raise_problem("open", sentence + ", ".join(listeners))
            log.warning("this node is open to anybody who reaches it", listeners=list(listeners))

    async def _open_admin(
        self, cluster: Cluster, broker: Broker, tier: Tier, store: LogStore, pipeline: PipelineBeside
    ) -> None:
        chronicle = Chronicle(
            broker,
            logs=store,
            tier=tier,
            blob_metrics=self._blob_metrics,
            directory=Path(self._settings.server.data_dir),
        )
        self._running.callback(chronicle.stop)
        self._running.callback(asyncio.create_task(chronicle.run()).cancel)
        parts = administration(
            broker,
            settings=self._settings,
            tier=tier,
            logs=store,
            blob_metrics=self._blob_metrics,
            metastore=cluster.store,
            health=self.health,
            is_store_down=self._is_store_down,
            history=chronicle.history,
            lag_trends=chronicle.lag_trends,
            pipeline=pipeline,
        )
        self._running.push_async_callback(parts.queries.stop)
        self._running.push_async_callback(parts.operations.stop)
        if self._parts.is_shared:
            self._running.callback(asyncio.create_task(parts.watch.run()).cancel)
        (listener,) = self._settings.listeners_of("admin")
        port = await open_admin_port(
            parts,
            self._settings.admin,
            listener,
            view=AdminView(metrics=self.metrics, health=self.health),
            directory=Path(self._settings.server.data_dir),
            running=self._running,
        )
        self.endpoints["admin"], self.endpoints["grpc"] = port.http, port.grpc
        self._application = port.application

    async def _keep_house(self, store: LogStore) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            forgotten = store.expire_producers(self._clock.now_ms())
            if forgotten:
                log.info("silent producers forgotten", count=forgotten)

    def _build_pipeline(self, directory: Directory) -> PipelineBeside:
        listeners, client_config = self._settings.listeners_of("kafka"), self._settings.server.pipeline_client_config
        return PipelineBeside(
            kafka=self.endpoints[listeners[0].name] if client_config else plain_address(listeners, self.endpoints),
            client_config=client_config,
            store=self._settings.object_store,
            data_dir=directory.path,
            umask=directory.former_umask,
        )

    def _start_pipeline(self, pipeline: PipelineBeside) -> None:
        self._running.push_async_callback(pipeline.stop)
        if (problem := pipeline.start()) is not None:
            self._problems.raise_problem("pipeline", problem)
            log.warning("pipeline not started", reason=problem)

    def health(self) -> Health:
        return Health(
            is_ready=self._is_ready,
            broker_id=self._broker_name,
            version=__version__,
            uptime_ms=self._age_ms,
            doors={name: f"{host}:{port}" for name, (host, port) in self.endpoints.items()},
            open_listeners=open_listeners(self._settings),
            quic_fingerprint=self.quic_fingerprint,
            problems=(*self._problems.standing(), *(self._services.loading() if self._services is not None else ())),
        )

    @property
    def _age_ms(self) -> int:
        return self._clock.monotonic_ms() - self._started_ms

    def _failed(self, error: HeadraceError) -> None:
        self._is_ready = False
        self._problems.raise_problem("fault", str(error))
        self._on_fault(error)

    async def stop(self, *, is_clean: bool = False) -> None:
        """Doors first, the metastore last. A clean stop uploads what only this disk has, once nobody appends any more."""
        self._is_ready = False
        self._is_stop_clean = is_clean
        await self._running.aclose()

    async def hand_over(self) -> None:
        """Before a clean stop of one of several: returns when object storage has all that others need to go on."""
        if self._sharing is not None:
            await self._sharing.handing_over.run()

    def hurry(self) -> None:
        """Whoever has asked for a clean stop waits no longer for uploads."""
        self._is_hurried = True
        if self._tier is not None:
            self._tier.hurry()

    async def prepare_to_leave(self) -> None:
        """Before its partitions are moved: those who open them then find all of this broker's state and need little else."""
        if self._tier is None:
            return
        try:
            async with asyncio.timeout(_LAST_STATE_S):
                await self._tier.save_shared_state()
        except (Unavailable, TimeoutError) as error:
            log.warning("partitions are given up without a newer state", reason=str(error))

    async def _stop_tier(self, tier: Tier) -> None:
        is_tail_uploaded = self._is_stop_clean and not self._is_hurried
        await tier.stop(tail_ms=self._settings.tier.stop_upload_ms if is_tail_uploaded else 0)
