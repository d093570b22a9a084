"""Controllers and brokers as real processes on this machine, and what their metastore says of them."""

import asyncio
import contextlib
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.support.etcd import EtcdServers
from tests.support.node import NodeProcess
from tests.support.ports import kept_port

from headrace.config.keys import all_keys
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore

T = TypeVar("T")


class ClusterProcesses:
    """`start` controllers, then brokers. Without an etcd there is one controller, with a file."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack, etcd: EtcdServers | None) -> None:
        self._directory = directory
        self._stack = stack
        self._etcd = etcd
        self.controllers: list[NodeProcess] = []
        self.brokers: dict[str, NodeProcess] = {}

    def start_controllers(self, count: int = 1) -> None:
        for number in range(count):
            settings = {
                "node.id": f"c{number}",
                "listen.rpc": self._address(),
                "listen.http": self._address(),
                **(
                    {"metastore.type": "sqlite"}
                    if self._etcd is None
                    else {"metastore.endpoints": ",".join(self._etcd.endpoints)}
                ),
            }
            self.controllers.append(self._process(f"c{number}", "controller", settings))
        for controller in self.controllers:
            controller.spawn()
        for controller in self.controllers:
            controller.await_up()

    def start_broker(self, name: str, more: Mapping[str, object] | None = None) -> NodeProcess:
        """With `more` settings than every broker has."""
        settings = {
            "broker.id": name,
            "controller.endpoints": ",".join(self.controller_endpoints),
            "object_store.type": "local",
            "object_store.local.path": str(self._directory / "objects"),
            **self.doors(),
            **(more or {}),
        }
        broker = self.brokers[name] = self._process(name, "broker", settings)
        return broker.start()

    def doors(self) -> dict[str, str]:
        """Addresses that a broker can listen at."""
        return {key: self._address() for key in all_keys() if key.startswith("listen.") and key not in _OF_CONTROLLERS}

    @property
    def controller_endpoints(self) -> tuple[str, ...]:
        return tuple(str(each.settings["listen.rpc"]) for each in self.controllers)

    def active(self) -> NodeProcess | None:
        """The controller that says of itself that it is active."""
        for controller in self.controllers:
            with contextlib.suppress(OSError):
                address = f"http://{controller.settings['listen.http']}/metrics"
                with urllib.request.urlopen(address, timeout=2) as page:
                    if b"headrace_controller_active 1.0" in page.read():
                        return controller
        return None

    def registration(self, broker: str) -> pb.BrokerRegistration | None:
        async def read(store: EtcdMetastore) -> pb.BrokerRegistration | None:
            item = await store.get(keys.broker(broker))
            return None if item is None else values.decode(pb.BrokerRegistration, item.value)

        return self.ask(read)

    def ask(self, question: Callable[[EtcdMetastore], Awaitable[T]], at: EtcdSettings | None = None) -> T:
        """Of the metastore, through the controllers, or `at` an etcd itself."""

        async def ask() -> T:
            store = await EtcdMetastore.open(at or EtcdSettings(endpoints=self.controller_endpoints, prefix=""))
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(ask())

    def _address(self) -> str:
        return f"127.0.0.1:{self._stack.enter_context(kept_port())}"

    def _process(self, name: str, role: str, settings: Mapping[str, object]) -> NodeProcess:
        process = NodeProcess(self._directory / name, settings, command=(role,))
        self._stack.callback(_kill, process)
        return process


_OF_CONTROLLERS: Sequence[str] = ("listen.rpc", "listen.http")


@contextlib.contextmanager
def cluster_processes(directory: Path, etcd: EtcdServers | None = None) -> Iterator[ClusterProcesses]:
    with contextlib.ExitStack() as stack:
        yield ClusterProcesses(directory, stack, etcd)


def _kill(process: NodeProcess) -> None:
    if process.process is not None and process.process.poll() is None:
        process.kill()
