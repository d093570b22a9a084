"""A real node in its own process, for tests that need one: started, waited for, killed, started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.forked_nodes import COMMANDS, ForkedNode, fork_node

START_SECONDS_MAX = 90.0
"""A start takes one second; on a machine with ten times more to do than cores, more than thirty."""
STOP_SECONDS_MAX = 90.0
SMALL_WAL = 64 * 1024 * 1024


class NodeProcess:
    """`headrace up --ephemeral` on a data directory that outlives it."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        program: list[str] | None = None,
        command: Sequence[str] = ("up", "--ephemeral", "--no-pipeline"),
        environment: Mapping[str, str] | None = None,
    ):
        self.data_dir = data_dir
        self.settings = {"wal.capacity.bytes": SMALL_WAL, **(settings or {})}
        self.program = program
        self.command = command
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.process: subprocess.Popen[bytes] | ForkedNode | None = None
        self.log_path = data_dir.parent / f"{data_dir.name}.log"

    def start(self) -> "NodeProcess":
        self.spawn()
        self.await_up()
        return self

    def await_up(self) -> None:
        eventually(self._is_up, START_SECONDS_MAX, "the node did not come up", self.log_text)

    def spawn(self) -> None:
        """Start the process and do not wait for its doors."""
        arguments = [*self.command, "--data-dir", str(self.data_dir)]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        # A killed node leaves its endpoints behind; a new one must write them anew.
        (self.data_dir / "endpoints.json").unlink(missing_ok=True)
        with self.log_path.open("ab") as log:
            self.process = self._forked(arguments, log.fileno()) or subprocess.Popen(
                [*(self.program or [sys.executable, "-m", "headrace"]), *arguments],
                stdout=log,
                stderr=log,
                env=self.environment,
            )

    def _forked(self, arguments: Sequence[str], log: int) -> ForkedNode | None:
        if self.program is not None or arguments[0] not in COMMANDS:
            return None
        return fork_node(arguments, self.environment, log)

    def _is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.log_text()}")
        return (self.data_dir / "endpoints.json").exists()

    @property
    def endpoints(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.data_dir / "endpoints.json").read_text())
        return found

    @property
    def kafka(self) -> str:
        return self.endpoints["kafka"]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")[-8000:]

    def kill(self) -> None:
        """kill -9: no goodbye, no flush."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def process_signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def running_node(
    data_dir: Path, settings: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[NodeProcess]:
    node = NodeProcess(data_dir, settings, environment=environment)
    try:
        yield node.start()
    finally:
        if node.process is not None and node.process.poll() is None:
            node.process.kill()
            node.process.wait()


def eventually(
    condition: Callable[[], bool], seconds: float, what: str, detail: Callable[[], str] = lambda: ""
) -> None:
    """Wait for `condition`; fail with `what` when it does not come."""
    deadline = time.monotonic() + seconds
    while True:
        # Asked once more after the deadline: it may be this process that stood still.
        is_late = time.monotonic() > deadline
        if condition():
            return
        if is_late:
            raise AssertionError(f"{what} within {seconds} s\n{detail()}")
        time.sleep(0.02)
