"""Three machines on this one: network namespaces on a bridge, each with a member of an etcd, a controller and a broker.

They are prepared by `headrace cluster init`, so that nodes prove who they are as on real machines. Whatever is in a namespace reaches the
others by the bridge alone; clients are outside, on the bridge. Files are shared, and with them the local object store: a machine that
is cut off can still write to the bucket, and must not be believed.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.support.node import NodeProcess, eventually

START_S: Final = 90.0
DISK_BYTES: Final = 192 * 1024 * 1024
"""Of each broker: a file system of its own, which can be filled."""
_NETWORK: Final = "10.213.{}.{}"
_BROKER: Final = "broker"
_CONTROLLER: Final = "controller"
_ETCD: Final = "etcd"
PARTS: Final = (_ETCD, _CONTROLLER, _BROKER)


def missing_for_namespaces() -> str | None:
    """Why this machine cannot have others inside it; None when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "etcd", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(["ip", "netns", "add", "hr-probe"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"no network namespaces: {probe.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", "hr-probe"], check=False)
    return None


@dataclass
class Machine:
    """A namespace and its processes, by what they are."""

    number: int
    address: str
    namespace: str
    link: str
    """The bridge's end of its cable."""
    directory: Path
    processes: dict[str, "NodeProcess | EtcdProcess"] = field(default_factory=dict)

    @property
    def broker(self) -> NodeProcess:
        found = self.processes[_BROKER]
        assert isinstance(found, NodeProcess)
        return found

    @property
    def kafka(self) -> str:
        return f"{self.address}:9092"

    def signal(self, number: signal.Signals, parts: Sequence[str] = PARTS) -> None:
        for part in parts:
            os.kill(self.processes[part].pid, number)

    def kill(self, parts: Sequence[str] = PARTS) -> None:
        for part in reversed(parts):
            self.processes[part].kill()

    def start(self, parts: Sequence[str] = PARTS) -> None:
        for part in parts:
            self.processes[part].spawn()

    def fill_disk(self) -> Path:
        """With a file that takes what is left."""
        filler = self.broker.data_dir / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        return filler

    def lose_disk(self) -> None:
        """Everything the broker has kept, while it does not run."""
        for path in self.broker.data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def cut(self) -> None:
        """Nobody hears it, and it hears nobody."""
        run("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        run("ip", "link", "set", self.link, "up")

    def shut_out(self, other: "Machine") -> None:
        """What this one sends to the other is thrown away; what comes from there arrives."""
        run("ip", "-n", self.namespace, "route", "add", "blackhole", other.address)

    def let_in(self, other: "Machine") -> None:
        run("ip", "-n", self.namespace, "route", "delete", "blackhole", other.address)


class EtcdProcess:
    """As `NodeProcess`, of a member of the etcd."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class Machines:
    def __init__(self, directory: Path, machines: list[Machine]) -> None:
        self.directory = directory
        self.all = machines

    @property
    def bootstrap(self) -> str:
        return ",".join(machine.kafka for machine in self.all)

    def await_up(self) -> None:
        """Every broker serves."""
        for machine in self.all:
            machine.broker.await_up()

    def check_alive(self) -> None:
        """Nobody has ended by itself."""
        for machine, part in itertools.product(self.all, PARTS):
            process = machine.processes[part]
            assert process.process is not None
            assert process.process.poll() is None, f"{part} of {machine.address} ended with {process.process.poll()}"

    def await_back(self, machine: Machine) -> None:
        eventually(
            lambda: (machine.broker.data_dir / "endpoints.json").exists(),
            START_S,
            f"{machine.namespace} does not serve again",
            machine.broker.log_text,
        )


@contextlib.contextmanager
def three_machines(directory: Path, settings: Sequence[str] = ()) -> Iterator[Machines]:
    """With `settings` for every broker. Skips the test where there can be no namespaces."""
    if (reason := missing_for_namespaces()) is not None:
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        machines = _wire_up(directory, stack)
        _prepare(directory, machines, settings)
        for machine in machines:
            machine.broker.data_dir.mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "headrace-test", str(machine.broker.data_dir))
            stack.callback(run, "umount", "-l", str(machine.broker.data_dir))
        stack.callback(_kill_all, machines)
        for machine in machines:
            machine.start()
        found = Machines(directory, machines)
        found.await_up()
        yield found


def _wire_up(directory: Path, stack: contextlib.ExitStack) -> list[Machine]:
    """A network of its own for every run: another may be under way."""
    tag, bridge = _bridge(stack)
    machines = []
    for number in (1, 2, 3):
        machine = Machine(number, _NETWORK.format(tag, number), f"hr{tag}-{number}", f"hr{tag}v{number}", directory)
        run("ip", "netns", "add", machine.namespace)
        stack.callback(run, "ip", "netns", "delete", machine.namespace)
        run("ip", "link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
        run("ip", "link", "set", machine.link, "master", bridge, "up")
        run("ip", "-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "eth0")
        run("ip", "-n", machine.namespace, "link", "set", "eth0", "up")
        run("ip", "-n", machine.namespace, "link", "set", "lo", "up")
        machines.append(machine)
    return machines


def _bridge(stack: contextlib.ExitStack) -> tuple[int, str]:
    for tag in range(1, 250):
        name = f"hr{tag}br"
        made = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False)
        if made.returncode == 0:
            stack.callback(run, "ip", "link", "delete", name)
            run("ip", "address", "add", f"{_NETWORK.format(tag, 254)}/24", "dev", name)
            run("ip", "link", "set", name, "up")
            return tag, name
    raise AssertionError("no bridge could be made")


def _prepare(directory: Path, machines: list[Machine], settings: Sequence[str]) -> None:
    site = directory / "site"
    _headrace("cluster", "init", "--nodes", ",".join(each.address for each in machines), "--out", str(site))
    members = ",".join(f"m{machine.number}=http://{machine.address}:2380" for machine in machines)
    for machine in machines:
        files = site / machine.address
        inside = ["ip", "netns", "exec", machine.namespace]
        headrace = [*inside, sys.executable, "-m", "headrace"]
        # The files are not where `init` was told that they will be: that is one place on every machine.
        proof = {
            "rpc.tls.ca": files / "ca.pem",
            "rpc.tls.certificate": files / "node.pem",
            "rpc.tls.key": files / "node.key",
        }
        serving = {
            "listener.kafka.open": "true",
            "object_store.type": "local",
            "object_store.local.path": directory / "objects",
            **dict(each.split("=", 1) for each in settings),
        }
        machine.processes = {
            _ETCD: EtcdProcess([*inside, *_etcd(machine, members)], directory / f"etcd-{machine.number}.log"),
            _CONTROLLER: NodeProcess(
                directory / f"controller-{machine.number}",
                proof,
                program=headrace,
                command=("controller", "--config", str(files / "controller.toml")),
            ),
            _BROKER: NodeProcess(
                directory / f"broker-{machine.number}",
                {**proof, **serving},
                program=headrace,
                command=("broker", "--config", str(files / "broker.toml")),
            ),
        }


def _etcd(machine: Machine, members: str) -> list[str]:
    client, peer = f"http://{machine.address}:2379", f"http://{machine.address}:2380"
    return [
        *("etcd", "--name", f"m{machine.number}", "--data-dir", str(machine.directory / f"etcd-{machine.number}")),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", members, "--initial-cluster-state", "new", "--logger", "zap"),
    ]


def _kill_all(machines: list[Machine]) -> None:
    for machine, part in itertools.product(machines, PARTS):
        process = machine.processes[part]
        if process.process is not None and process.process.poll() is None:
            process.kill()


def _headrace(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "headrace", *arguments], check=True, capture_output=True)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
