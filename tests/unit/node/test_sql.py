"""Queries beside a node: one process at a time, which never outlives its query, its time limit or its node."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.support.tier_node import eventually

from headrace.admin.api.calls import SqlOrder
from headrace.admin.api.operations import Progress
from headrace.config.load import load
from headrace.errors import Conflict, Invalid, Overloaded, TimedOut, Unavailable
from headrace.node.pipeline import PipelineBeside
from headrace.node.sql import WAITING_MAX, Queries
from headrace.pipeline.process import NodePlace

WORKER = """
import json, os, subprocess, sys
from pathlib import Path

scratch = Path(sys.argv[sys.argv.index("--scratch") + 1])
with (scratch.parent / "starts").open("a") as starts:
    starts.write(str(os.getpid()) + "\\n")
for line in sys.stdin:
    order = json.loads(line)
    if order["query"] == "hang":
        # As Spark has a JVM and Python workers, and these have a process group of their own.
        child = subprocess.Popen(["sleep", "600"], process_group=0)
        (scratch.parent / "child").write_text(str(child.pid))
        child.wait()
    if order["query"] == "die":
        print("the JVM had no memory", file=sys.stderr)
        sys.exit(3)
    if order["query"] == "idle":
        print(json.dumps({"type": "answered", "row_count": 0, "result": {}}), flush=True)
        sys.exit(0)
    if order["query"] == "wrong":
        answer = {"type": "refused", "reason": "not allowed"}
    elif order["query"] == "broken":
        answer = {"type": "failed", "reason": "no Java"}
    else:
        answer = {"type": "answered", "row_count": 1, "result": {"rows": [[order["query"]]]}}
    print(json.dumps(answer), flush=True)
"""


class Beside:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.problem = ""

    def place(self) -> NodePlace:
        if self.problem:
            raise Conflict(self.problem)
        return NodePlace(bootstrap="127.0.0.1:1", bucket="objects", data_dir=self._data_dir)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Queries]:
    def made(**assignments: object) -> Queries:
        given = [f"data.dir={tmp_path}", *(f"{name}={value}" for name, value in assignments.items())]
        settings = load(file=None, environ={}, assignments=given, is_ephemeral=True)
        beside = cast(PipelineBeside, Beside(tmp_path))
        return Queries(settings, beside, (sys.executable, "-c", WORKER))

    return made


@pytest.fixture
async def queries(make: Callable[..., Queries]) -> AsyncIterator[Queries]:
    queries = make()
    yield queries
    await queries.stop()


async def ask(queries: Queries, query: str) -> Any:  # Any: JSON
    return msgspec.json.decode(await queries.run(SqlOrder(query=query, limit=5), Progress()))


def starts(tmp_path: Path) -> list[int]:
    path = tmp_path / "pipeline" / "starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_alive(process_id: int) -> bool:
    try:
        return (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_one_process_answers_one_query_after_the_other(queries: Queries, tmp_path: Path) -> None:
    progress = Progress()
    assert msgspec.json.decode(await queries.run(SqlOrder(query="a", limit=5), progress)) == {"rows": [["a"]]}
    assert (progress.done, progress.unit) == (1, "rows")
    with pytest.raises(Invalid, match="not allowed"):
        await ask(queries, "wrong")
    found = list(await asyncio.gather(ask(queries, "b"), ask(queries, "c")))
    assert found == [{"rows": [["b"]]}, {"rows": [["c"]]}]
    assert len(starts(tmp_path)) == 1
    await queries.stop()
    assert not is_alive(starts(tmp_path)[0])
    assert not (tmp_path / "pipeline" / "sql").exists()


async def test_one_that_ended_idle_is_replaced(queries: Queries, tmp_path: Path) -> None:
    await ask(queries, "idle")
    assert await ask(queries, "a") == {"rows": [["a"]]}
    assert len(starts(tmp_path)) == 2


async def test_one_that_fails_says_why_and_the_next_query_has_another(queries: Queries, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no Java"):
        await ask(queries, "broken")
    with pytest.raises(Unavailable, match="the JVM had no memory"):
        await ask(queries, "die")
    assert await ask(queries, "a") == {"rows": [["a"]]}
    assert len(starts(tmp_path)) == 3


async def test_whoever_cancels_ends_everything_that_was_started(queries: Queries, tmp_path: Path) -> None:
    running = asyncio.ensure_future(ask(queries, "hang"))
    note = tmp_path / "pipeline" / "child"
    await eventually(lambda: note.exists() and note.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not is_alive(int(note.read_text())))
    assert not is_alive(starts(tmp_path)[0])
    assert not (tmp_path / "pipeline" / "sql").exists()
    assert await ask(queries, "a") == {"rows": [["a"]]}


async def test_a_query_that_takes_too_long_is_ended(make: Callable[..., Queries], tmp_path: Path) -> None:
    queries = make(**{"admin.sql.timeout.ms": 1000})
    with pytest.raises(TimedOut, match=r"admin\.sql\.timeout\.ms"):
        await ask(queries, "hang")
    assert not any(is_alive(each) for each in starts(tmp_path))


async def test_so_many_wait_and_no_more(queries: Queries, tmp_path: Path) -> None:
    running = [asyncio.ensure_future(ask(queries, "hang")) for _ in range(WAITING_MAX + 1)]
    await eventually(lambda: len(starts(tmp_path)) == 1)
    with pytest.raises(Overloaded):
        queries.require_room()
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    queries.require_room()
    assert len(starts(tmp_path)) == 1, "who was cancelled while waiting has started nothing"


async def test_what_keeps_spark_from_running_is_said(make: Callable[..., Queries]) -> None:
    with pytest.raises(Conflict, match=r"pipeline\.enable"):
        make(**{"pipeline.enable": "false"}).require_room()
    queries = make()
    beside = Beside(Path())
    beside.problem = "there is no java"
    queries._place = beside.place
    with pytest.raises(Conflict, match="no java"):
        queries.require_room()


async def test_a_worker_that_was_killed_is_replaced(queries: Queries, tmp_path: Path) -> None:
    await ask(queries, "a")
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    assert await ask(queries, "b") == {"rows": [["b"]]}
