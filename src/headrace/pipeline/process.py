"""The pipeline as a child process of the node, for whoever runs the node. Imports nothing of Spark.

    place = NodePlace(bootstrap="127.0.0.1:9092", bucket="data/objects", data_dir=Path("data"))
    group.create_task(PipelineProcess(place).run())

Runs until cancelled. A child that dies is started again after a pause that doubles up to a minute; the node is not touched.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Final

import msgspec

from headrace.pipeline.source.security import VARIABLE
from headrace.telemetry import get_logger

BACKOFF_MIN_S: Final = 2.0
BACKOFF_MAX_S: Final = 60.0
STEADY_S: Final = 120.0
"""A child that lived this long had started well: the next failure is a new one."""
STOP_DEADLINE_S: Final = 75.0
"""A little longer than a runner waits for its batches."""

log = get_logger(__name__)


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a process beside a node has to know of it."""

    bootstrap: str
    """`host:port` of the node's Kafka door."""
    bucket: str
    """URL or directory of the log's objects."""
    data_dir: Path
    umask: int | None = None
    """The child's, where it is to differ. It sets it itself: uvloop cannot do that for a child."""
    client_config: str | None = None
    """The file it logs in with; that of whoever has started the node is not the pipeline's."""

    def arguments(self) -> list[str]:
        return [
            *("--data-dir", str(self.data_dir)),
            *("--bootstrap", self.bootstrap),
            *("--bucket", self.bucket),
            *("--parent", str(os.getpid())),
            *(() if self.umask is None else ("--umask", f"{self.umask:o}")),
        ]

    def environment(self) -> dict[str, str]:
        found = {name: value for name, value in os.environ.items() if name != VARIABLE}
        return found if self.client_config is None else {**found, VARIABLE: self.client_config}


class PipelineProcess:
    def __init__(self, place: NodePlace) -> None:
        self._environment = place.environment()
        self._command = [sys.executable, "-m", "headrace.pipeline.main", *place.arguments()]
        self.restart_count = 0

    async def run(self) -> None:
        backoff_s = BACKOFF_MIN_S
        while True:
            began = asyncio.get_running_loop().time()
            # A session of its own: Ctrl-C in a terminal reaches the node, which then stops us in order.
            child = await asyncio.create_subprocess_exec(*self._command, start_new_session=True, env=self._environment)
            log.info("pipeline started", process_id=child.pid)
            try:
                status = await child.wait()
            except asyncio.CancelledError:
                await _stop(child)
                raise
            if asyncio.get_running_loop().time() - began > STEADY_S:
                backoff_s = BACKOFF_MIN_S
            self.restart_count += 1
            log.warning("pipeline ended; starting it again", status=status, pause_s=backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)


async def _stop(child: Process) -> None:
    if child.returncode is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_DEADLINE_S):
            await child.wait()
    except TimeoutError:
        log.warning("pipeline did not stop in time and is killed", process_id=child.pid)
        child.kill()
        await child.wait()
