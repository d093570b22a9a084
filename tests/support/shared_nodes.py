"""Several brokers over one metastore and one bucket in this process, and a hand that plays the controller.

Each is a real node with doors for Kafka, mlog and RustLog; with those for Logjam and administrators too if the settings say where
they listen. Who is active, and who leads
what, the test says.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from tests.support.metastores import Unclosed

from headrace.broker.services import Broker
from headrace.clock import SystemClock
from headrace.config.load import load
from headrace.config.settings import NodeSettings
from headrace.control import keys, plans, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Put
from headrace.control.plans import PartitionName
from headrace.errors import HeadraceError
from headrace.node.node import Node
from headrace.node.parts import Door, open_kafka, open_logjam, open_mlog, open_rustlog, real_parts

SETTINGS: Mapping[str, str] = {
    "listen.kafka": "127.0.0.1:0",
    "listen.mlog": "127.0.0.1:0",
    "listen.rustlog": "127.0.0.1:0",
    "listen.peer": "127.0.0.1:0",
    "listen.quic": "off",
    "pipeline.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "wal.capacity.bytes": str(64 << 20),
    "cache.write.size.bytes": str(16 << 20),
    "num.partitions": "3",
}

OwnSettings: TypeAlias = Callable[[str], Mapping[str, str]]
"""What one member is given and the others are not, by its name."""


@dataclass
class Member:
    name: str
    node: Node
    broker: Broker = field(init=False)
    faults: list[HeadraceError] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.address_of("kafka")

    def address_of(self, door: str) -> str:
        return "{}:{}".format(*self.node.endpoints[door])


class SharedNodes:
    def __init__(
        self, directory: Path, store: EmbeddedMetastore, settings: Mapping[str, str], own: OwnSettings
    ) -> None:
        self._directory = directory
        self._own = own
        self._settings = {**SETTINGS, **settings}
        self._has_admin = "listen.admin" in settings
        self._has_logjam = "listen.logjam.router" in settings
        self.store = store
        self.members: dict[str, Member] = {}

    async def start(self, name: str) -> Member:
        given = {
            **self._settings,
            **self._own(name),
            "data.dir": str(self._directory / name),
            "wal.path": str(self._directory / name / "wal"),
            "broker.id": name,
            "object_store.local.path": str(self._directory / "bucket"),
        }
        settings = load(file=None, environ={}, assignments=[f"{key}={value}" for key, value in given.items()])
        member = Member(name, None)  # type: ignore[arg-type]

        async def shared(*_: object, **__: object) -> Unclosed:
            return Unclosed(self.store)

        def noted_kafka(settings: NodeSettings, broker: Broker) -> Door:
            member.broker = broker
            return open_kafka(settings, broker)

        doors = (noted_kafka, open_mlog, open_rustlog, *([open_logjam] if self._has_logjam else ()))
        parts = replace(
            real_parts(), metastore=shared, is_shared=True, has_admin=self._has_admin, doors=doors, quic=None
        )
        member.node = Node(settings, on_fault=member.faults.append, parts=parts)
        await member.node.start()
        self.members[name] = member
        await self._write_state(name, pb.ACTIVE)
        return member

    async def _write_state(self, name: str, state: "pb.BrokerState.ValueType") -> None:
        item = await self.store.get(keys.broker(name))
        assert item is not None
        registration = values.decode(pb.BrokerRegistration, item.value)
        registration.state = state
        endpoints = self.members[name].node.endpoints
        registration.host, registration.port_kafka = endpoints["kafka"]
        registration.port_peer = endpoints["peer"][1]
        for listener, (host, port) in endpoints.items():
            registration.advertised[listener] = f"{host}:{port}"
        await self.store.txn((), (Put(item.key, values.encode(registration)),))

    async def fence(self, name: str) -> None:
        """As a controller does: its epoch is over."""
        item = await self.store.get(keys.broker_identity(name))
        assert item is not None
        identity = values.decode(pb.BrokerIdentity, item.value)
        identity.broker_epoch += 1
        await self.store.txn((), (Put(item.key, values.encode(identity)),))
        await self._write_state(name, pb.FENCED)

    async def move(self, source: str, targets: Sequence[str]) -> None:
        """Everything that `source` leads, in turn to `targets`."""
        cluster = await Cluster.load(self.store, SystemClock())
        led = list(cluster.topics.led_by(source))
        leaders: dict[PartitionName, str] = {place: targets[number % len(targets)] for number, place in enumerate(led)}
        for txn in plans.move_leaders(cluster.topics, leaders, limits=self.store.txn_limits, guards=()):
            assert (await self.store.txn(txn.compares, txn.then_ops, txn.else_ops)).is_success

    async def stop(self, name: str, *, is_clean: bool = True) -> None:
        await self.members.pop(name).node.stop(is_clean=is_clean)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.members.values())


@asynccontextmanager
async def shared_nodes(
    directory: Path,
    names: Sequence[str],
    settings: Mapping[str, str] | None = None,
    own: OwnSettings = lambda name: {},
) -> AsyncIterator[SharedNodes]:
    store = await EmbeddedMetastore.open(directory / "metastore.sqlite", clock=SystemClock())
    nodes = SharedNodes(directory, store, settings or {}, own)
    try:
        for name in names:
            await nodes.start(name)
        yield nodes
    finally:
        await asyncio.gather(*(nodes.stop(name) for name in list(nodes.members)))
        await store.close()
