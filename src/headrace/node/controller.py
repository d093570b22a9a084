"""A controller as a process: its metastore, its port for brokers, its part in deciding.

Start: lock the directory, open the metastore and wait for it, load the cluster's topics, listen. It answers brokers from then on, also
while another controller is active.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from headrace import __version__
from headrace.admin.application import gateway_routes
from headrace.admin.gateway import GrpcGateway
from headrace.admin.server import AdminDoor
from headrace.admin.session import Health
from headrace.admin.session import Node as AdminView
from headrace.broker.identity import serves
from headrace.clock import Clock, SystemClock
from headrace.config.settings import NodeSettings
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.controller.driver import Controller
from headrace.control.controller.machine import DEFAULT_TIMING, Machine
from headrace.control.controller.metrics import register_controller_metrics
from headrace.control.controller.office import Office
from headrace.control.controller.probe import is_endpoint_refused, is_refused
from headrace.control.controller.service import MembershipService, Numbering
from headrace.control.credentials import server_credentials
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.etcd.server import EtcdServer
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.metastore import Metastore, read_all
from headrace.control.revision_mark import FILE_NAME as MARK_FILE
from headrace.doors.kafka.errors import code_of
from headrace.doors.tls import keep_fresh
from headrace.errors import Fault, HeadraceError, Unavailable
from headrace.node.admin_port import admin_tls
from headrace.node.data_dir import DataDir
from headrace.node.metastore import METASTORE_FILE
from headrace.node.patience import patiently
from headrace.telemetry.logging import get_logger
from headrace.telemetry.metrics import Metrics
from headrace.tier.sequencer import Sequencer, decode_commit

PATIENCE_S: Final = 60.0
"""How long a metastore may be away at the start."""
_PROGRESS_S: Final = 0.5
"""Between two questions of a quiet watch: a member that is cut off must not keep a controller, and the brokers that use it, in the past."""
_OFFICE_CALL_S: Final = 0.7
"""Of one member of the etcd, for what keeps the lease of two seconds alive: there must be time for another one."""

log = get_logger(__name__)


class ControllerNode:
    """Built by `start`; whatever was started is stopped, also when a later part fails to start."""

    def __init__(
        self, settings: NodeSettings, *, on_fault: Callable[[HeadraceError], None], clock: Clock | None = None
    ) -> None:
        assert settings.control.node_id is not None
        self._settings = settings
        self._control = settings.control
        self._name = settings.control.node_id
        self._on_fault = on_fault
        self._clock = clock or SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._running = AsyncExitStack()
        self._is_ready = False
        self._problems: list[str] = []
        self._controller: Controller | None = None
        self.endpoints: dict[str, tuple[str, int]] = {}

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._is_ready = False
        await self._running.aclose()

    async def _start(self) -> None:
        directory = DataDir(Path(self._settings.server.data_dir))
        directory.open()
        self._running.callback(directory.close)
        store = await self._open_store()
        cluster = await patiently(lambda: Cluster.load(store, self._clock), patience_s=PATIENCE_S)
        office = Office(
            await self._open_for_office(store),
            controller_id=self._name,
            endpoint="",
            clock=self._clock,
            is_refused=is_endpoint_refused,
        )
        sequencer = Sequencer(store, office.guard, on_lost=office.lost)
        controller = Controller(
            cluster,
            Machine(DEFAULT_TIMING),
            office,
            clock=self._clock,
            probe=is_refused,
            compact=store.compact if isinstance(store, EtcdMetastore) else None,
            beside=[sequencer.run],
        )
        self._controller = controller
        await self._listen(store, controller, sequencer)
        await controller.read()
        self._running.push_async_callback(controller.stop)
        running = asyncio.create_task(self._run(controller))
        self._running.push_async_callback(_end, running)
        await self._open_http(store, controller)
        directory.publish(self.endpoints)
        self._is_ready = True
        log.info("controller ready", controller=self._name, cluster=cluster.cluster_id)

    async def _open_store(self) -> Metastore:
        store: Metastore
        if self._control.metastore_type == "etcd":
            etcd = self._control.as_etcd()
            store = await patiently(lambda: EtcdMetastore.open(etcd, progress_s=_PROGRESS_S), patience_s=PATIENCE_S)
        else:
            self._problems.append(
                "the metadata of this cluster are in one file of one controller, which is no quorum: while it is away nothing "
                "changes, and with its disk they are lost"
            )
            directory = Path(self._settings.server.data_dir)
            store = await EmbeddedMetastore.open(
                directory / METASTORE_FILE,
                clock=self._clock,
                mark=directory / MARK_FILE,
                expendable=keys.EXPENDABLE,
            )
        self._running.push_async_callback(store.close)
        return store

    async def _open_for_office(self, store: Metastore) -> Metastore:
        if self._control.metastore_type != "etcd":
            return store
        quick = await EtcdMetastore.open(self._control.as_etcd(), call_s=_OFFICE_CALL_S)
        self._running.push_async_callback(quick.close)
        return quick

    async def _listen(self, store: Metastore, controller: Controller, sequencer: Sequencer) -> None:
        async def commit_object(commit: bytes) -> Numbering:
            done = await sequencer.commit(decode_commit(commit))
            return Numbering(done.number, done.revision)

        gateway = GrpcGateway(partial(broker_addresses, store), self._settings.admin.brokers_ca)
        server = EtcdServer(
            store, others=[MembershipService(controller, commit_object=commit_object).handler(), gateway]
        )
        address = self._control.listen_rpc
        try:
            port = await server.start(address, server_credentials(self._control))
        except Unavailable as error:
            raise Unavailable(f"listen.rpc: {error}") from error
        self._running.push_async_callback(server.stop)
        host = address.rpartition(":")[0]
        self.endpoints["rpc"] = (host, port)
        controller.office.endpoint = self._control.advertised_rpc or f"{host}:{port}"

    async def _run(self, controller: Controller) -> None:
        try:
            await controller.run()
        except Exception as error:
            # One that serves and decides nothing is worse than none: another takes over from one that has stopped.
            log.error("what decides has failed", exc_info=error)
            self._is_ready = False
            self._on_fault(error if isinstance(error, HeadraceError) else Fault(repr(error)))

    async def _open_http(self, store: Metastore, controller: Controller) -> None:
        metrics = Metrics(with_process=True)
        register_controller_metrics(metrics, controller)
        settings = msgspec.structs.replace(self._settings.admin, listen=self._control.listen_http, advertised=None)
        (listener,) = self._settings.listeners_of("admin")
        if (tls := admin_tls(listener)) is not None:
            self._running.callback(asyncio.create_task(keep_fresh([tls.http])).cancel)
        door = AdminDoor(
            settings,
            AdminView(metrics=metrics, health=self.health),
            more=gateway_routes(
                settings,
                partial(broker_addresses, store),
                code_of,
                is_plain_allowed=self._settings.security.plain_insecure,
            ),
            tls=None if tls is None else tls.http.context,
        )
        await door.start()
        self._running.push_async_callback(door.stop)
        self.endpoints["http"] = door.address

    def health(self) -> Health:
        return Health(
            is_ready=self._is_ready,
            broker_id=self._name,
            version=__version__,
            uptime_ms=self._clock.monotonic_ms() - self._started_ms,
            doors={name: f"{host}:{port}" for name, (host, port) in self.endpoints.items()},
            problems=(*self._problems, *self._without_active()),
        )

    def _without_active(self) -> tuple[str, ...]:
        if self._controller is None or self._controller.office.holder is not None:
            return ()
        return ("no controller is active: metadata cannot change, and no broker is replaced",)


async def broker_addresses(store: Metastore, listener: str) -> list[str]:
    """Of every broker that serves, by number, as they are told to clients."""
    found = await read_all(store, keys.BROKERS)
    brokers = [values.decode(pb.BrokerRegistration, item.value) for item in found.items if _is_broker(item.key)]
    serving = sorted((each for each in brokers if serves(each)), key=lambda each: each.numeric_id)
    return [each.advertised[listener] for each in serving if listener in each.advertised]


def _is_broker(key: str) -> bool:
    return isinstance(keys.parse(key), keys.BrokerKey)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
