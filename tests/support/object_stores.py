"""Object stores for tests: real servers started on free ports, and stopped again.

`seaweedfs()` and `moto()` skip the test where the server cannot be had, with the reason.
"""

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import obstore
import obstore.exceptions
import pytest
from obstore.store import S3Store
from tests.support.ports import kept_port

from headrace.bench import seaweedfs as weed
from headrace.bench.errors import RivalUnavailable
from headrace.blob.settings import ObjectStoreSettings

BUCKET = "headrace-test"
CREDENTIALS = weed.CREDENTIALS


class CannotStart(Exception):
    """The server did not come up."""


class S3Server(msgspec.Struct, kw_only=True):
    """A running S3-compatible server. `stop` and `start` let a test take the store away and bring it back."""

    name: str
    port: int
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, deadline_s: float = 120) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env={**os.environ, **CREDENTIALS})
        end = time.monotonic() + deadline_s
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise CannotStart(f"{self.name} did not come up: {self.log.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)
        self._make_bucket(deadline_s=deadline_s)

    def stop(self) -> None:
        """As hard as a power cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def settings(self, prefix: str = "", **changes: object) -> ObjectStoreSettings:
        settings = ObjectStoreSettings(
            type="s3", s3_bucket=BUCKET, s3_region="us-east-1", s3_endpoint=self.endpoint, s3_prefix=prefix
        )
        return msgspec.structs.replace(settings, **changes)

    def _make_bucket(self, *, deadline_s: float) -> None:
        """Wait until the bucket takes an object: SeaweedFS makes it on demand, and listens before it has a volume."""
        self._status("PUT", f"/{BUCKET}")
        end = time.monotonic() + deadline_s
        while not self._takes_objects():
            if time.monotonic() > end:
                raise CannotStart(f"{self.name} takes no objects: {self.log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)

    def _takes_objects(self) -> bool:
        store = S3Store(
            BUCKET,
            config={"endpoint": self.endpoint, "region": "us-east-1"},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(store, "ready", b"x")
        except obstore.exceptions.BaseError:
            return False
        return True

    def _answers(self) -> bool:
        return self._status("GET", "/") > 0

    def _status(self, method: str, path: str) -> int:
        """Status of an unsigned request; 0 when there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


@contextlib.contextmanager
def moto() -> Iterator[S3Server]:
    """moto's S3 over HTTP, in a process of its own."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        pytest.skip("moto_server is not installed")
    with kept_port() as port, _directory() as directory:
        command = [str(program), "-H", "127.0.0.1", "-p", str(port)]
        server = S3Server(name="moto", port=port, command=command, log=directory / "log")
        yield from _running(server)


@contextlib.contextmanager
def seaweedfs() -> Iterator[S3Server]:
    """A real SeaweedFS: master, volume server, filer and S3 gateway in one process, data in a scratch directory."""
    try:
        program = weed.find_program()
    except RivalUnavailable as error:
        pytest.skip(str(error))
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(kept_port()) for _ in range(8)]
        directory = stack.enter_context(_directory())
        command = weed.command(program, directory, ports)
        server = S3Server(name="seaweedfs", port=weed.s3_port(ports), command=command, log=directory / "log")
        yield from _running(server)


def _running(server: S3Server) -> Iterator[S3Server]:
    # obstore takes credentials from the environment, as a node does.
    os.environ.update(CREDENTIALS)
    try:
        try:
            server.start()
        except CannotStart as error:
            pytest.skip(str(error))
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="hr-store-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
