"""The pipeline beside a node, started by the event loop that a node runs on."""

import asyncio
from pathlib import Path

import pytest
import uvloop
from tests.support.tier_node import eventually

from headrace.errors import Invalid
from headrace.pipeline import main as pipeline_main
from headrace.pipeline.process import NodePlace, PipelineProcess


def test_the_event_loop_of_a_node_starts_the_child_with_its_umask(tmp_path: Path) -> None:
    told = tmp_path / "arguments"

    async def start() -> None:
        process = PipelineProcess(NodePlace(bootstrap="127.0.0.1:1", bucket="objects", data_dir=tmp_path, umask=0o27))
        script = f"import sys, pathlib; pathlib.Path({str(told)!r}).write_text(' '.join(sys.argv[1:]))"
        process._command[1:3] = ["-c", script]
        running = asyncio.ensure_future(process.run())
        await eventually(lambda: process.restart_count or running.done())
        assert not running.done(), running.exception()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    uvloop.run(start())
    assert told.read_text().endswith("--umask 27")


def test_the_child_takes_the_umask_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("headrace.pipeline.main.os.umask", seen.append)
    monkeypatch.setattr(pipeline_main, "require_java", lambda: None)
    monkeypatch.setattr(pipeline_main, "config_beside_node", _refused)
    arguments = ["--data-dir", str(tmp_path), "--bootstrap", "127.0.0.1:1", "--bucket", "objects", "--umask", "27"]
    assert pipeline_main.main(arguments) == 1
    assert seen == [0o27]


def _refused(*_: object, **__: object) -> None:
    raise Invalid("only the arguments are looked at")
