"""Real etcd servers for tests: of one member or several, on free ports, killed and started again as a test likes.

`etcd_servers` skips the test where there is no `etcd` on the path, with the reason.
"""

import contextlib
import http.client
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.ports import kept_port

START_S = 60


@dataclass
class Member:
    name: str
    client_port: int
    peer_port: int
    directory: Path
    command: list[str] = field(default_factory=list)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=2)
        try:
            connection.request("GET", "/health")
            return b"true" in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@dataclass
class EtcdServers:
    members: list[Member]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> None:
        for member in self.members:
            member.start()
        self.await_healthy()

    def await_healthy(self) -> None:
        end = time.monotonic() + START_S
        for member in self.members:
            while member.process is not None and not member.is_healthy():
                if member.process.poll() is not None or time.monotonic() > end:
                    said = (member.directory / "log").read_text(errors="replace")[-500:]
                    raise AssertionError(f"etcd {member.name} did not come up: {said}")
                time.sleep(0.05)


@contextlib.contextmanager
def etcd_servers(count: int = 1) -> Iterator[EtcdServers]:
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("no etcd on the path (Debian: etcd-server)")
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="hr-etcd-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        members = []
        for index in range(count):
            home = directory / f"m{index}"
            home.mkdir()
            ports = [stack.enter_context(kept_port()) for _ in range(2)]
            members.append(Member(f"m{index}", ports[0], ports[1], home))
        cluster = ",".join(f"{member.name}=http://127.0.0.1:{member.peer_port}" for member in members)
        for member in members:
            client, peer = f"http://{member.endpoint}", f"http://127.0.0.1:{member.peer_port}"
            member.command = [
                *(program, "--name", member.name, "--data-dir", str(member.directory / "data")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, "--initial-cluster-state", "new", "--logger", "zap"),
            ]
            stack.callback(member.kill)
        servers = EtcdServers(members)
        servers.start()
        yield servers
