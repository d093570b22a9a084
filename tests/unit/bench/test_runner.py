"""The runner with a rival that is a child process doing nothing, and cases that count."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headrace.bench.case import Case, Workload
from headrace.bench.errors import LoadFailed
from headrace.bench.process import read_usage, stop_process
from headrace.bench.results import Results
from headrace.bench.rivals import Broker
from headrace.bench.runner import run_benchmark
from headrace.bench.scale import QUICK, Scale


class Idler(msgspec.Struct, frozen=True, kw_only=True):
    """A rival without a broker."""

    name: str
    fsync: str = "none"
    doors: frozenset[str] = frozenset({"kafka"})

    def launch(self, directory: Path) -> Broker:
        directory.mkdir(parents=True)
        return Broker(self.name, directory, lambda _: _sleeper(), lambda *_: "nowhere:0")


class Silent:
    def __init__(self) -> None:
        self.steps = 0
        self.told: list[str] = []

    def begin(self, steps: int) -> None:
        self.steps = steps

    def step(self, what: str) -> None:
        self.told.append(what)


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


def test_rivals_take_turns_and_the_first_round_is_thrown_away(tmp_path: Path) -> None:
    turns: list[str] = []

    def measure(broker: Broker, scale: Scale) -> dict[str, float]:
        turns.append(broker.name)
        return {"produce_rate": float(len(turns))}

    workload = Workload(
        name="w", title="", question="", cases=lambda _: [Case(workload="w", name="only", measure=measure)]
    )
    progress = Silent()
    results = run_benchmark(
        [workload], [Idler(name="a"), Idler(name="b")], QUICK, directory=tmp_path / "work", progress=progress
    )
    assert turns == ["a", "b"] * (QUICK.rounds + 1)
    assert [one.metrics["produce_rate"] for one in results.measurements] == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert progress.steps == len(progress.told) == 8


def test_what_is_done_is_kept_before_the_rest_begins(tmp_path: Path) -> None:
    def breaks_off(broker: Broker, scale: Scale) -> dict[str, float]:
        raise KeyboardInterrupt

    def workload(name: str, measure: Callable[[Broker, Scale], dict[str, float]]) -> Workload:
        cases = [Case(workload=name, name="only", measure=measure)]
        return Workload(name=name, title="", question="", cases=lambda _: cases)

    kept: list[Results] = []
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(
            [workload("done", lambda *_: {"produce_rate": 1.0}), workload("long", breaks_off)],
            [Idler(name="a")],
            QUICK,
            directory=tmp_path / "work",
            progress=Silent(),
            keep=kept.append,
        )
    assert [{one.workload for one in results.measurements} for results in kept] == [{"done"}]


def test_a_case_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    def measure(broker: Broker, scale: Scale) -> dict[str, float]:
        if broker.name == "a":
            raise LoadFailed("error code 6")
        return {"produce_rate": 1.0}

    workload = Workload(
        name="w",
        title="",
        question="",
        cases=lambda _: [Case(workload="w", name="only", measure=measure, is_fresh=True)],
    )
    results = run_benchmark(
        [workload], [Idler(name="a"), Idler(name="b")], QUICK, directory=tmp_path / "work", progress=Silent()
    )
    assert {one.rival for one in results.measurements} == {"b"}
    assert {(one.rival, one.reason) for one in results.failures} == {("a", "error code 6")}


def test_nothing_is_measured_on_a_disk_that_is_almost_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(workload="w", name="only", measure=lambda *_: {"produce_rate": 1.0})]
    workload = Workload(name="w", title="", question="", cases=lambda _: cases)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 30))
    results = run_benchmark([workload], [Idler(name="a")], QUICK, directory=tmp_path / "work", progress=Silent())
    assert not results.measurements
    assert "only 3.0 GiB of the disk are free" in results.failures[0].reason


def test_a_rival_sits_out_what_happens_at_doors_it_does_not_have(tmp_path: Path) -> None:
    cases = [Case(workload="w", name="other door", measure=lambda *_: {"produce_rate": 1.0}, door="rustlog")]
    workload = Workload(name="w", title="", question="", cases=lambda _: cases)
    rivals = [Idler(name="a"), Idler(name="b", doors=frozenset({"rustlog"}))]
    progress = Silent()
    results = run_benchmark([workload], rivals, QUICK, directory=tmp_path / "work", progress=progress)
    assert {one.rival for one in results.measurements} == {"b"}
    assert progress.steps == len(progress.told)


def test_usage_counts_children() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
            "'x = bytearray(50_000_000); print(1, flush=True); input()'], stdin=subprocess.PIPE); p.wait()",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert read_usage(parent.pid).resident_bytes > 50_000_000
    finally:
        parent.kill()
        parent.communicate()


def test_a_stopped_process_is_gone() -> None:
    process = _sleeper()
    stop_process(process, seconds_max=10)
    assert process.returncode is not None
    stop_process(process, seconds_max=10)
