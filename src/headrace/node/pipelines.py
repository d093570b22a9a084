"""The pipeline beside this node, as its API sees it: what it says of itself, what stands in its tables, and ways to steer it.

Tables are read, replayed and backfilled by processes of their own: the broker holds none of the libraries for that, and does not wait.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.admin.api.calls import PipelinesState, PipelineState, RecordRows, TableState
from headrace.clock import Clock
from headrace.config.settings import NodeSettings
from headrace.errors import Conflict, Rejected
from headrace.node.pipeline import PipelineBeside
from headrace.pipeline.config_file import TEMPLATE_NAME
from headrace.pipeline.status import ProcessStatus, read_status
from headrace.telemetry.logging import get_logger

_LOOK_S: Final = 60.0
_STOP_S: Final = 20.0
_SAID_MAX: Final = 2_000
"""Characters of what a process has said last that are worth showing."""

log = get_logger(__name__)


class PipelinesView:
    def __init__(self, settings: NodeSettings, clock: Clock, beside: PipelineBeside) -> None:
        directory = Path(settings.server.data_dir).absolute() / "pipeline"
        self._state_dir = directory / "state"
        self._config = directory / TEMPLATE_NAME
        self._is_enabled = settings.server.pipeline_enable
        self._clock = clock
        self._beside = beside
        self._looking = asyncio.Semaphore(1)
        """One look at a time: each is a second of CPU."""

    def read(self) -> ProcessStatus | None:
        """What the process has written last; None where it does not run, or has written nothing yet."""
        if not self._is_enabled:
            return None
        try:
            return read_status(self._state_dir)
        except (OSError, msgspec.DecodeError):
            return None

    def state(self) -> PipelinesState:
        if not self._is_enabled:
            return PipelinesState(state="off")
        found = self.read()
        if found is None:
            return PipelinesState(state="starting" if self._beside.is_running else "stopped")
        is_silent = found.is_silent(now_ms=self._clock.now_ms())
        return PipelinesState(
            state="silent" if is_silent else found.state,
            written_ms=found.written_ms,
            pipelines=tuple(
                PipelineState(
                    name=each.name,
                    state="silent" if is_silent else each.state,
                    batch=each.batch,
                    rows_total=each.rows_total,
                    rows_per_second=each.rows_per_second,
                    batch_ms=each.batch_ms,
                    lag=each.lag,
                    lag_total=each.lag_total,
                    restart_count=each.restart_count,
                    error=each.error,
                    changed_ms=each.changed_ms,
                )
                for each in found.pipelines
            ),
        )

    async def tables(self, pipeline: str) -> list[TableState]:
        async with self._looking, asyncio.timeout(_LOOK_S):
            said = await self._run(["-m", "headrace.pipeline.tables.look", str(self._config_path()), pipeline])
        return msgspec.json.decode(said, type=list[TableState])

    async def rows_of(self, topic: str, partition: int, offset: int) -> list[RecordRows]:
        place = (topic, str(partition), str(offset))
        async with self._looking, asyncio.timeout(_LOOK_S):
            said = await self._run(["-m", "headrace.pipeline.tables.find", str(self._config_path()), *place])
        return msgspec.json.decode(said, type=list[RecordRows])

    async def replay(self, pipeline: str) -> str:
        return await self._command("replay-dlq", pipeline)

    async def backfill(self, pipeline: str, *, since: str, until: str, is_replacing: bool) -> str:
        options = [*(("--from", since) if since else ()), *(("--to", until) if until else ())]
        return await self._command("backfill", pipeline, *options, *(("--replace",) if is_replacing else ()))

    def start(self) -> None:
        """Nothing if it runs. `Conflict` says what keeps it from running."""
        self._check_enabled()
        if not self._beside.is_running and (problem := self._beside.start()) is not None:
            raise Conflict(problem)

    async def stop(self) -> None:
        """Lets the batches that run finish; it stays stopped until somebody starts it, or the node."""
        self._check_enabled()
        await self._beside.stop()

    def _check_enabled(self) -> None:
        if not self._is_enabled:
            raise Conflict("this node runs without its pipeline: set pipeline.enable and start it again")

    def _config_path(self) -> Path:
        self._check_enabled()
        if not self._config.exists():
            raise Conflict("the pipeline has not begun yet: its configuration is written at its first start")
        return self._config

    async def _command(self, verb: str, pipeline: str, *options: str) -> str:
        config = str(self._config_path())
        said = await self._run(["-m", "headrace", "pipeline", verb, pipeline, *options, "--config", config])
        return said.decode(errors="replace").strip()[-_SAID_MAX:]

    async def _run(self, arguments: Sequence[str]) -> bytes:
        process = await asyncio.create_subprocess_exec(
            # A session of its own: Spark's JVM ends with whoever started it.
            sys.executable, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )  # fmt: skip
        try:
            said, complaints = await process.communicate()
        finally:
            await _end(process)
        if process.returncode:
            lines = complaints.decode(errors="replace").strip().splitlines() or [f"status {process.returncode}"]
            raise Rejected(lines[-1].removeprefix("headrace: ")[-_SAID_MAX:])
        return said


async def _end(process: Process) -> None:
    """Also of a look or a replay that is cancelled: with all that it has started."""
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
