"""The brokers that are compared: how each is started, found and stopped.

A `Rival` describes; `launch` gives a `Broker` that answers Kafka requests. A broker's data stays in its directory
over `restart`, and goes with the directory, which belongs to the caller.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headrace.bench import maven
from headrace.bench.delay import Delays
from headrace.bench.errors import RivalFailed, RivalUnavailable
from headrace.bench.frames import api_versions_request
from headrace.bench.process import Reading, free_port, read_usage, stop_process
from headrace.bench.seaweedfs import CREDENTIALS, running_store

_START_SECONDS_MAX: Final = 180.0
_STOP_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.02
_ENDPOINTS: Final = Path("data") / "endpoints.json"

_KAFKA_JVM_OPTIONS: Final = (
    # bin/kafka-server-start.sh and bin/kafka-run-class.sh of the distribution.
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

_KAFKA_AS_SHIPPED: Final = {
    # config/server.properties of the distribution, as far as it is not an address or a path.
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class Rival(Protocol):
    """A broker that can be started."""

    @property
    def name(self) -> str: ...

    @property
    def fsync(self) -> str:
        """When it flushes to disk, in a few words: printed beside every figure."""
        ...

    @property
    def doors(self) -> frozenset[str]:
        """The protocols it speaks, by headrace's names for them."""
        ...

    def launch(self, directory: Path) -> "Broker":
        """Start it on `directory`, empty or from an earlier launch; returns when it answers."""
        ...


@dataclass(slots=True)
class Broker:
    """One started rival. Owned by who launched it, who must stop it."""

    name: str
    directory: Path
    _spawn: Callable[[Path], subprocess.Popen[bytes]]
    _locate: Callable[[Path, subprocess.Popen[bytes]], str]
    bootstrap: str = ""
    resources: ExitStack = field(default_factory=ExitStack, repr=False)
    """What it needs beside itself, such as an object store: outlives a restart, and goes with `close`."""
    store_address: str = ""
    """Of the S3 server that it uses, where it has one of its own."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        self._process = self._spawn(self.directory)
        try:
            self.bootstrap = self._locate(self.directory, self._process)
            _await_answer(self.bootstrap, self._process, self.directory)
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        if self._process is not None:
            stop_process(self._process, seconds_max=_STOP_SECONDS_MAX)
            self._process = None

    def close(self) -> None:
        self.stop()
        self.resources.close()

    def address_of(self, door: str) -> str:
        """Where a door or a listener is; Apache Kafka has one with TLS at most beside its own."""
        if door == "kafka":
            return self.bootstrap
        named = self.directory / f"bootstrap.{door}"
        return named.read_text() if named.exists() else _headrace_endpoints(self.directory)[door]

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RivalFailed(f"{self.name} is not running")
        return self._process.pid

    def read_usage(self) -> Reading:
        return read_usage(self.pid)


class ApacheKafka(msgspec.Struct, frozen=True, kw_only=True):
    """Apache Kafka as a single KRaft node with the heap, collector and settings it is shipped with."""

    version: str = maven.KAFKA_NEWEST
    is_durable: bool = False
    settings: Mapping[str, str] = {}
    """Beside those it is shipped with, or instead of them; an empty value takes one away."""
    tls_keystore: str = ""
    """A file with a key and a certificate (PEM): then it listens with TLS too, at the address of the door `tls`."""

    @property
    def name(self) -> str:
        return "kafka durable" if self.is_durable else "kafka"

    @property
    def fsync(self) -> str:
        return "every batch (log.flush.interval.messages=1)" if self.is_durable else "none (page cache)"

    @property
    def doors(self) -> frozenset[str]:
        return frozenset({"kafka"})

    def launch(self, directory: Path) -> Broker:
        java, class_path = maven.java_command(), maven.kafka_class_path(self.version)
        directory.mkdir(parents=True, exist_ok=True)
        properties = directory / "server.properties"
        if not properties.exists():
            self._write_properties(properties, directory)
            _format_storage(java, class_path, properties)

        def spawn(directory: Path) -> subprocess.Popen[bytes]:
            return _spawn([java, *_KAFKA_JVM_OPTIONS, "-cp", class_path, "kafka.Kafka", str(properties)], directory)

        def locate(directory: Path, _: subprocess.Popen[bytes]) -> str:
            return (directory / "bootstrap").read_text()

        broker = Broker(self.name, directory, spawn, locate)
        broker.start()
        return broker

    def _write_properties(self, path: Path, directory: Path) -> None:
        bootstrap, quorum = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        settings = _KAFKA_AS_SHIPPED | {
            "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{quorum}",
            "advertised.listeners": f"PLAINTEXT://{bootstrap}",
            "controller.quorum.voters": f"1@{quorum}",
            "log.dirs": str(directory / "logs"),
        }
        if self.tls_keystore:
            settings |= self._tls(settings, directory)
        if self.is_durable:
            settings["log.flush.interval.messages"] = "1"
        settings = {key: value for key, value in (settings | dict(self.settings)).items() if value}
        (directory / "bootstrap").write_text(bootstrap)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _tls(self, settings: Mapping[str, str], directory: Path) -> dict[str, str]:
        address = f"127.0.0.1:{free_port()}"
        (directory / "bootstrap.tls").write_text(address)
        return {
            **{name: f"{settings[name]},TLS://{address}" for name in ("listeners", "advertised.listeners")},
            "listener.security.protocol.map": settings["listener.security.protocol.map"] + ",TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.tls_keystore,
        }


_GRACE: Final = "tier.grace.ms=60000"
"""Objects of a deleted topic go after a minute, as the files of Kafka's do; in the usual hour a run would fill the disk."""


class Headrace(msgspec.Struct, frozen=True, kw_only=True):
    """headrace as `headrace up` starts it, without the pipeline unless told otherwise."""

    name: str = "headrace"
    fsync: str = "every group commit (WAL)"
    settings: tuple[str, ...] = ()
    """`KEY=VALUE` pairs, handed to `--set`."""
    environment: Mapping[str, str] = {}
    has_pipeline: bool = False

    @property
    def doors(self) -> frozenset[str]:
        return frozenset({"kafka", "rustlog"})

    def launch(self, directory: Path) -> Broker:
        command = Path(sys.executable).with_name("headrace")
        if not command.exists():
            raise RivalUnavailable(f"no {command}: install headrace into this environment first")
        directory.mkdir(parents=True, exist_ok=True)
        options = [option for pair in (_GRACE, *self.settings) for option in ("--set", pair)]

        def spawn(directory: Path) -> subprocess.Popen[bytes]:
            (directory / _ENDPOINTS).unlink(missing_ok=True)
            up = [str(command), "up", "--ephemeral", "--data-dir", str(directory / "data")]
            pipeline = [] if self.has_pipeline else ["--no-pipeline"]
            return _spawn([*up, *pipeline, *options], directory, self.environment)

        broker = Broker(self.name, directory, spawn, _headrace_bootstrap)
        broker.start()
        return broker


class HeadraceOnBucket(msgspec.Struct, frozen=True, kw_only=True):
    """headrace on a bucket: a SeaweedFS of its own on this machine, with the wait of a network in front of it."""

    name: str = "headrace"
    fsync: str = "every group commit (WAL)"
    delays: Delays = Delays(put=(60.0, 120.0), other=(20.0, 60.0))
    settings: tuple[str, ...] = ()

    @property
    def doors(self) -> frozenset[str]:
        return frozenset({"kafka", "rustlog"})

    def launch(self, directory: Path) -> Broker:
        with ExitStack() as stack:
            store = stack.enter_context(running_store(directory / "store", self.delays))
            settings = (*store.settings, *self.settings)
            node = Headrace(name=self.name, fsync=self.fsync, settings=settings, environment=CREDENTIALS)
            broker = node.launch(directory)
            broker.resources = stack.pop_all()
            broker.store_address = store.address
        return broker


def choose_rivals(against: Iterable[str]) -> list[Rival]:
    """headrace first, then both settings of each named rival."""
    rivals: list[Rival] = [Headrace()]
    for name in against:
        if name != "kafka":
            raise RivalUnavailable(f"no rival named {name!r}; there is: kafka")
        maven.java_command()
        maven.kafka_class_path(maven.KAFKA_NEWEST)
        rivals += [ApacheKafka(), ApacheKafka(is_durable=True)]
    return rivals


def _spawn(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with (directory / "output.log").open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {}),
        )


def _format_storage(java: str, class_path: str, properties: Path) -> None:
    shutil.rmtree(properties.parent / "logs", ignore_errors=True)
    command = [java, "-cp", class_path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.tools.StorageTool"]
    cluster_id = "aGVhZHJhY2UtYmVuY2gtMQ"  # Any 16 bytes in base64; each rival has a directory of its own.
    command += ["format", "--cluster-id", cluster_id, "--config", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS_MAX)
    if done.returncode != 0:
        raise RivalFailed(f"Kafka could not format its storage: {done.stderr.strip() or done.stdout.strip()}")


def _headrace_bootstrap(directory: Path, process: subprocess.Popen[bytes]) -> str:
    endpoints = directory / _ENDPOINTS
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        if endpoints.exists():
            return _headrace_endpoints(directory)["kafka"]
        _check_alive(process, directory)
        time.sleep(_POLL_SECONDS)
    raise RivalFailed(f"headrace wrote no {endpoints.name} in {_START_SECONDS_MAX:.0f} s")


def _headrace_endpoints(directory: Path) -> dict[str, str]:
    return msgspec.json.decode((directory / _ENDPOINTS).read_bytes(), type=dict[str, str])


def _await_answer(bootstrap: str, process: subprocess.Popen[bytes], directory: Path) -> None:
    """A listening port is not enough: Kafka listens well before it serves."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        _check_alive(process, directory)
        try:
            with socket.create_connection((host, int(port)), timeout=2.0) as connection:
                connection.sendall(api_versions_request())
                if connection.recv(4):
                    return
        except OSError:
            pass
        time.sleep(_POLL_SECONDS)
    raise RivalFailed(f"{bootstrap} did not answer ApiVersions in {_START_SECONDS_MAX:.0f} s")


def _check_alive(process: subprocess.Popen[bytes], directory: Path) -> None:
    if process.poll() is not None:
        tail = (directory / "output.log").read_text(errors="replace")[-2000:]
        raise RivalFailed(f"the broker ended with status {process.returncode} while starting:\n{tail}")
