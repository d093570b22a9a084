"""The pipeline beside a node: what it says when it does not run, and processes that fail, hang or are cancelled."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from tests.support.metastores import ManualClock
from tests.support.tier_node import eventually

from headrace.config.load import load
from headrace.errors import Conflict, Rejected
from headrace.node.pipeline import PipelineBeside
from headrace.node.pipelines import PipelinesView


class Beside:
    """As much of it as the view looks at."""

    is_running = False

    def start(self) -> str | None:
        return "there is no java"


@pytest.fixture
def view(tmp_path: Path) -> PipelinesView:
    settings = load(file=None, environ={}, assignments=[f"data.dir={tmp_path}"], is_ephemeral=True)
    return PipelinesView(settings, ManualClock(0), cast(PipelineBeside, Beside()))


async def test_what_keeps_it_from_starting_is_said(view: PipelinesView) -> None:
    assert view.state().state == "stopped"
    with pytest.raises(Conflict, match="no java"):
        view.start()
    with pytest.raises(Conflict, match="has not begun yet"):
        await view.tables("orders")


async def test_a_look_that_fails_says_why_in_the_words_of_its_process(view: PipelinesView, tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "headrace.yml").write_text("pipelines: {}")
    with pytest.raises(Rejected, match="orders"):
        await view.tables("orders")


async def test_whoever_cancels_ends_the_process_and_all_that_it_has_started(
    view: PipelinesView, tmp_path: Path
) -> None:
    """As a replay has started a JVM."""
    note = tmp_path / "child"
    program = f"import subprocess; p = subprocess.Popen(['sleep', '600']); open({str(note)!r}, 'w').write(str(p.pid)); p.wait()"
    running = asyncio.ensure_future(view._run(["-c", program]))
    await eventually(lambda: note.exists() and note.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    child = int(note.read_text())
    await eventually(lambda: not _is_alive(child))


def _is_alive(process_id: int) -> bool:
    try:
        return (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
