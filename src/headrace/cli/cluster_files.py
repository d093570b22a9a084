"""What the processes of a cluster on this machine are told: one directory and one settings file each.

The files stay, so that a process can be started by hand as well (`headrace broker --config DIR/node-1/broker.toml`).
"""

import json
import random
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from headrace.cli.supervisor import Child
from headrace.config.keys import all_keys
from headrace.config.load import PERCENT_OF_MEMORY
from headrace.config.memory import memory_bytes
from headrace.errors import Conflict, Invalid

Home = Literal["sqlite", "etcd"]

WAL_BYTES: Final = 256 * 1024 * 1024
ETCD_MEMBERS: Final = 3
CONTROLLERS: Final[Mapping[Home, int]] = {"sqlite": 1, "etcd": 3}
_FACTS: Final = "cluster.json"
_STEP: Final = 100
"""Between the ports of one process and those of the next of its kind."""
_CONTROLLER_PORTS: Final = {"listen.rpc": 9093, "listen.http": 9652}
_ETCD_PORTS: Final = (2379, 2380)
_ETCD_FLAGS: Final = ("--max-txn-ops=8192", "--max-request-bytes=8388608", "--quota-backend-bytes=8589934592")
_FREE_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections, which could take one before its listener does."""


def from_its_own(number: int, every: Sequence[str]) -> list[str]:
    """The same addresses, those of the same number first: whoever dies is the first choice of few."""
    first = number % len(every) if every else 0
    return [*every[first:], *every[:first]]


class LocalCluster:
    """`brokers` of them below `directory`, with as many controllers as their metastore's home allows."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int,
        home: Home,
        has_free_ports: bool,
        etcd_endpoints: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> None:
        self._directory = directory.absolute()
        self._home: Home = home
        self._settings = settings
        self._has_free_ports = has_free_ports
        self._taken: set[int] = set()
        self._check_same_as_before()
        self._etcd = self._etcd_members() if home == "etcd" and not etcd_endpoints else []
        self._etcd_endpoints = list(etcd_endpoints) or [client for _, client, _ in self._etcd]
        self._controllers = [
            (f"controller-{number + 1}", {key: self._address(port, number) for key, port in _CONTROLLER_PORTS.items()})
            for number in range(CONTROLLERS[home])
        ]
        doors = {
            name: int(str(key.default).rpartition(":")[2])
            for name, key in all_keys().items()
            if name.startswith("listen.") and name not in _CONTROLLER_PORTS
        }
        self._brokers = [
            (f"node-{number + 1}", {key: self._address(port, number) for key, port in doors.items()})
            for number in range(brokers)
        ]

    @property
    def controllers(self) -> list[str]:
        return [addresses["listen.rpc"] for _, addresses in self._controllers]

    def stages(self) -> list[list[Child]]:
        """In the order in which they start. Writes every file they need."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._directory / _FACTS).write_text(json.dumps({"metastore": self._home}))
        return [
            [self._etcd_child(name, client, peer) for name, client, peer in self._etcd],
            [self._controller_child(number, *each) for number, each in enumerate(self._controllers)],
            [self._broker_child(number, *each) for number, each in enumerate(self._brokers)],
        ]

    def publish(self) -> dict[str, dict[str, str]]:
        """Write `endpoints.json` of the whole: every broker's Kafka address, and where everything else is. Gives the doors of each broker."""
        brokers = {name: json.loads(self._ready(name).read_text()) for name, _ in self._brokers}
        found = {
            "kafka": [doors["kafka"] for doors in brokers.values()],
            "controllers": self.controllers,
            "brokers": brokers,
        }
        draft = self._directory / "endpoints.json.new"
        draft.write_text(json.dumps(found, indent=2))
        draft.replace(self._directory / "endpoints.json")
        return brokers

    def withdraw(self) -> None:
        (self._directory / "endpoints.json").unlink(missing_ok=True)

    def _controller_child(self, number: int, name: str, addresses: Mapping[str, str]) -> Child:
        members = from_its_own(number, self._etcd_endpoints)
        where = {"sqlite": {}, "etcd": {"metastore.endpoints": members}}[self._home]
        settings: dict[str, object] = {
            "node.id": name,
            "data.dir": str(self._directory / name),
            "metastore.type": self._home,
            **where,
            **addresses,
        }
        return self._child(name, "controller", settings)

    def _broker_child(self, number: int, name: str, addresses: Mapping[str, str]) -> Child:
        caches = {
            key: max(memory_bytes() * percent // 100 // len(self._brokers), 1 << 20)
            for key, percent in PERCENT_OF_MEMORY.items()
        }
        settings: dict[str, object] = {
            "broker.id": name,
            "data.dir": str(self._directory / name),
            "controller.endpoints": from_its_own(number, self.controllers),
            "object_store.type": "local",
            "object_store.local.path": str(self._directory / "objects"),
            "wal.capacity.bytes": WAL_BYTES,
            **caches,
            **addresses,
        }
        return self._child(name, "broker", settings, more=self._settings)

    def _child(self, name: str, role: str, settings: Mapping[str, object], *, more: Sequence[str] = ()) -> Child:
        folder = self._directory / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / f"{role}.toml"
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "headrace", role, "--config", str(file)]
        for assignment in more:
            command += ["--set", assignment]
        return Child(name, command, log=self._log(name), ready=self._ready(name))

    def _ready(self, name: str) -> Path:
        return self._directory / name / "endpoints.json"

    def _log(self, name: str) -> Path:
        return self._directory / "logs" / f"{name}.log"

    def _etcd_members(self) -> list[tuple[str, str, str]]:
        """Name, client address and peer address of each."""
        client, peer = _ETCD_PORTS
        return [
            (f"etcd-{number + 1}", self._address(client, number), self._address(peer, number))
            for number in range(ETCD_MEMBERS)
        ]

    def _etcd_child(self, name: str, client: str, peer: str) -> Child:
        program = shutil.which("etcd")
        if program is None:
            raise Invalid(
                "--metastore etcd: there is no program etcd on the PATH (Debian: etcd-server); name a running one with "
                "--etcd-endpoints, or use --metastore sqlite"
            )
        members = ",".join(f"{each}=http://{address}" for each, _, address in self._etcd)
        command = [
            *(program, "--name", name, "--data-dir", str(self._directory / name)),
            *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
            *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", members, "--initial-cluster-state", "new", "--logger", "zap", *_ETCD_FLAGS),
        ]
        return Child(name, command, log=self._log(name))

    def _check_same_as_before(self) -> None:
        """Brokers that lost their metadata would find a bucket full of records that nobody knows of."""
        facts = self._directory / _FACTS
        if facts.exists() and (before := json.loads(facts.read_text())["metastore"]) != self._home:
            raise Conflict(
                f"the cluster in {self._directory} has its metadata in {before}: start it with --metastore {before}"
            )

    def _address(self, usual: int, number: int) -> str:
        port = self._free_port() if self._has_free_ports else usual + _STEP * number
        return f"127.0.0.1:{port}"

    def _free_port(self) -> int:
        for port in random.sample(_FREE_PORTS, k=1000):
            if port in self._taken:
                continue
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self._taken.add(port)
            return port
        raise Invalid("no free port was found on this machine")
