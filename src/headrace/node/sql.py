"""SQL beside this node: one query at a time, in a process that has Spark and nothing of the broker.

The process is started with the first query and kept for the next ones, until it has been idle for some minutes. Whatever a query does not
end well by (cancelled, too late, the node stops), its process is killed with all that it has started, and its files are deleted. A node that
is killed leaves nothing either: the process sees its input end.
"""

import asyncio
import contextlib
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headrace.admin.api.calls import SqlOrder
from headrace.admin.api.operations import Progress
from headrace.config.settings import NodeSettings
from headrace.errors import Conflict, Invalid, Overloaded, TimedOut, Unavailable
from headrace.node.pipeline import PipelineBeside
from headrace.pipeline.process import NodePlace
from headrace.pipeline.sql.messages import Answer, Answered, Failed, QueryOrder, Refused
from headrace.pipeline.sql.sessions import end_session

RESULT_BYTES_MAX: Final = 1024 * 1024
"""Of the cells of one result: dozens of them are kept."""
WAITING_MAX: Final = 4
_LINE_MAX: Final = 16 * RESULT_BYTES_MAX
"""One answer; in JSON a character may take six."""
_WORKER: Final = (sys.executable, "-m", "headrace.pipeline.sql.worker")
_LOG: Final = "log"
_LOG_BYTES: Final = 2_000
_SAID_MAX: Final = 500


class Queries:
    """What `admin` asks as its `Queries`."""

    def __init__(self, settings: NodeSettings, beside: PipelineBeside, program: Sequence[str] = _WORKER) -> None:
        self._is_enabled = settings.server.pipeline_enable
        self._timeout_ms = settings.admin.sql_timeout_ms
        self._scratch = Path(settings.server.data_dir).absolute() / "pipeline" / "sql"
        self._place: Callable[[], NodePlace] = beside.place
        self._program = program
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._process: Process | None = None

    def require_room(self) -> None:
        """`Conflict` says what keeps Spark from running here, `Overloaded` that enough others wait."""
        if not self._is_enabled:
            raise Conflict(
                "SQL needs Spark, and this node runs without its pipeline: set pipeline.enable and start it again"
            )
        self._place()
        if self._waiting > WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} queries wait for another already; wait, or cancel one")

    async def run(self, order: SqlOrder, progress: Progress) -> msgspec.Raw:
        """The result as JSON. Waits until the queries before it have ended."""
        progress.unit = "rows"
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._answer(order)
        finally:
            self._waiting -= 1
        match answer:
            case Answered():
                progress.done = progress.total = answer.row_count
                return answer.result
            case Refused():
                raise Invalid(answer.reason)
            case Failed():
                raise Unavailable(answer.reason)

    async def stop(self) -> None:
        """Of the process that waits for another query. Queries under way are cancelled before."""
        await self._end()

    async def _answer(self, order: SqlOrder) -> Answer:
        line = msgspec.json.encode(QueryOrder(query=order.query, rows_max=order.limit, bytes_max=RESULT_BYTES_MAX))
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                if self._process is not None:
                    # It may just have ended, being idle: then another is asked.
                    answer = await self._ask(self._process, line)
                if answer is None:
                    answer = await self._ask(await self._start(), line)
            if answer is None:
                raise Unavailable(f"Spark ended without an answer: {await asyncio.to_thread(self._last_words)}")
        except TimeoutError as error:
            raise TimedOut(
                f"not done after {self._timeout_ms // 1000} seconds (admin.sql.timeout.ms); it was ended"
            ) from error
        finally:
            if not isinstance(answer, Answered | Refused):
                await self._end()
        return answer

    async def _ask(self, process: Process, line: bytes) -> Answer | None:
        assert process.stdin is not None
        assert process.stdout is not None
        said = b""
        with contextlib.suppress(ConnectionError):
            process.stdin.write(line + b"\n")
            await process.stdin.drain()
            said = await process.stdout.readline()
        return msgspec.json.decode(said, type=Answer) if said.endswith(b"\n") else None

    async def _start(self) -> Process:
        await self._end()
        place = self._place()
        log = await asyncio.to_thread(self._make_scratch)
        with log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, *place.arguments()),
                *("--scratch", str(self._scratch)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=_LINE_MAX,
                env=place.environment(),
                # By its session everything that it starts is found again.
                start_new_session=True,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            # Not waited for yet: its number is nobody else's. One that has ended has taken all of its session along.
            end_session(process.pid)
        await process.wait()
        await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    def _make_scratch(self) -> BinaryIO:
        """A node that was killed has left one, perhaps."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        return (self._scratch / _LOG).open("wb")

    def _last_words(self) -> str:
        try:
            text = (self._scratch / _LOG).read_bytes()[-_LOG_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            text = ""
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing was said")[
            :_SAID_MAX
        ]
