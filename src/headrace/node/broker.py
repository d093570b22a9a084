"""A broker of several as a process: one incarnation of the node after another, until it is told to stop.

An incarnation ends when it is fenced: the controllers did not hear it for a session. It
stops without a word to anybody, for nothing it writes counts any more, and the next one registers, reads the cluster anew and opens
its doors at the same addresses. Only a fault of its own (a disk that failed) ends the process.
"""

import asyncio
import dataclasses
import gc
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final

from headrace.clock import Clock
from headrace.config.identity import broker_id
from headrace.config.settings import NodeSettings
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, Registered
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.membership import Membership
from headrace.control.metastore import Metastore
from headrace.errors import HeadraceError, StaleEpoch, Unavailable
from headrace.log.wal.paths import wal_paths
from headrace.node.data_dir import DataDir
from headrace.node.node import Node
from headrace.node.parts import real_parts
from headrace.node.patience import patiently
from headrace.telemetry.logging import get_logger
from headrace.tier.plans import Numbered
from headrace.tier.sequencer import Committed, encode_commit

PATIENCE_S: Final = 60.0
"""How long controllers may be away at a start."""
LEAVE_S: Final = 30.0
"""How long a broker that stops waits until what it leads is led by others."""
_GOODBYE_S: Final = 3.0
"""How long it tries to say that it has stopped. Who does not hear it notices by itself, sooner than that."""
_CALL_S: Final = 2.0
"""Of one controller for one call, before another is asked: one that is paused must not stop the brokers that use it."""
_PROGRESS_S: Final = 0.5
_AGAIN_S: Final = 0.5
_CLUSTER_FILE: Final = "cluster.id"
_MACHINE_FILE: Final = Path("/etc/machine-id")

log = get_logger(__name__)

OnReady = Callable[[Mapping[str, tuple[str, int]]], None]


class End(Enum):
    """Why an incarnation is over."""

    STOPPED = "stopped"
    FENCED = "fenced"
    FAILED = "failed"


class QuietDirectory(DataDir):
    """Says where the doors are only once the cluster knows this broker: who waits for that wants to be served."""

    def publish(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        self._endpoints = dict(endpoints)

    def announce(self) -> None:
        super().publish(self._endpoints)


class BrokerProcess:
    def __init__(self, settings: NodeSettings, *, on_ready: OnReady) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._parts = dataclasses.replace(
            real_parts(),
            directory=self._open_directory,
            metastore=self._open_metastore,
            register=self._register,
            sequence=self._sequence,
            watches_neighbours=True,
            is_shared=True,
            silent_ms=lambda: self._membership.silent_ms,
        )
        self._directory = Path(settings.server.data_dir)
        self._membership = Membership(
            settings.control.as_controllers(),
            broker_id(settings.server),
            clock=self._parts.clock,
            cluster_id=self._kept_cluster_id(),
        )
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._node: Node | None = None
        self._data_dir: QuietDirectory | None = None
        self._told_to_stop = asyncio.Event()

    def stop(self) -> None:
        """Told twice, it waits no longer for uploads."""
        if self._told_to_stop.is_set() and self._node is not None:
            self._node.hurry()
        self._told_to_stop.set()
        self._finish(End.STOPPED)

    async def run(self) -> int:
        """The exit code."""
        try:
            while True:
                end = await self._live()
                if end is not End.FENCED or self._told_to_stop.is_set():
                    return 1 if end is End.FAILED else 0
                log.warning("this broker was fenced; it registers anew")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._told_to_stop.wait(), _AGAIN_S)
                    return 0
                self._end = asyncio.get_running_loop().create_future()
        finally:
            await self._membership.close()

    async def _live(self) -> End:
        node = self._node = Node(self._settings, on_fault=self._failed, parts=self._parts)
        has_begun = False
        try:
            has_begun = await self._unless_ended(self._begin(node))
            end = await self._end
        except (Unavailable, StaleEpoch) as error:
            log.warning("this broker could not start", reason=str(error))
            end = End.STOPPED if self._told_to_stop.is_set() else End.FENCED
        is_clean = end is End.STOPPED
        log.info("stopping", clean=is_clean)
        if is_clean and has_begun:  # Before it has, nobody waits for what it leads.
            await node.prepare_to_leave()
            await self._leave(node)
        try:
            await node.stop(is_clean=is_clean)
        except (Unavailable, StaleEpoch) as error:
            # Its last words are those of an incarnation that may not write any more, or nobody was there to take them.
            log.warning("this incarnation could not end in order", reason=str(error))
        if is_clean:
            await self._membership.leave(is_gone=True, patience_s=_GOODBYE_S)
        log.info("stopped")
        gc.unfreeze()
        return end

    async def _leave(self, node: Node) -> None:
        """Others lead what they can when this returns."""
        handing_over = asyncio.ensure_future(node.hand_over())
        if not await self._membership.leave(is_gone=False, patience_s=LEAVE_S):
            node.hurry()  # Who could take note of uploads is not there; this disk keeps what it has.
        handing_over.cancel()
        (failure,) = await asyncio.gather(handing_over, return_exceptions=True)
        if isinstance(failure, Exception):
            log.warning("not everything could be handed over", reason=str(failure))

    async def _begin(self, node: Node) -> None:
        await node.start()
        await self._membership.activate(_addresses(node), patience_s=PATIENCE_S)
        assert self._data_dir is not None
        self._data_dir.announce()
        gc.collect()
        gc.freeze()
        self._on_ready(node.endpoints)

    async def _unless_ended(self, work: Any) -> bool:
        """Whether it was done before this incarnation was over."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._end}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        task.cancel()
        with suppress(asyncio.CancelledError, HeadraceError):
            await task
        return False

    def _failed(self, error: HeadraceError) -> None:
        if isinstance(error, StaleEpoch | Unavailable):
            log.warning("this incarnation is over", reason=str(error))
            self._finish(End.FENCED)
        else:
            log.error("this broker has failed and stops", reason=str(error))
            self._finish(End.FAILED)

    def _finish(self, end: End) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _open_directory(self, path: Path) -> QuietDirectory:
        self._data_dir = QuietDirectory(path)
        return self._data_dir

    async def _open_metastore(self, settings: NodeSettings, *, clock: Clock) -> Metastore:
        controllers = settings.control.as_controllers()
        return await patiently(
            lambda: EtcdMetastore.open(controllers, call_s=_CALL_S, progress_s=_PROGRESS_S), patience_s=PATIENCE_S
        )

    async def _register(self, cluster: Cluster, name: str, endpoint: pb.BrokerRegistration) -> Registered:
        registration = pb.BrokerRegistration()
        registration.CopyFrom(endpoint)
        registration.machine_id = _machine_id()
        registration.wal_path = str(wal_paths(self._settings.log, self._directory)[1].absolute())
        entered = await self._membership.register(
            registration, patience_s=PATIENCE_S, on_fenced=lambda: self._finish(End.FENCED)
        )
        (self._directory / _CLUSTER_FILE).write_text(self._membership.cluster_id + "\n")
        cluster.enter(entered.fence)
        return entered.registered

    async def _sequence(self, wanted: Numbered) -> Committed:
        return Committed(*await self._membership.commit_object(encode_commit(wanted)))

    def _kept_cluster_id(self) -> str:
        """Of the cluster this directory belongs to; empty before it has joined one."""
        with suppress(FileNotFoundError):
            return (self._directory / _CLUSTER_FILE).read_text().strip()
        return ""


def _addresses(node: Node) -> pb.BrokerRegistration:
    host, port = node.endpoints["kafka"]
    advertised = {name: f"{host}:{port}" for name, (host, port) in node.endpoints.items()}
    _, port_quic = node.endpoints.get("quic", ("", 0))
    return pb.BrokerRegistration(
        host=host,
        port_kafka=port,
        port_quic=port_quic,
        port_peer=node.endpoints["peer"][1],
        advertised=advertised,
        ring_id=node.ring_id,
    )


def _machine_id() -> str:
    with suppress(OSError):
        return _MACHINE_FILE.read_text().strip()
    return socket.gethostname()
