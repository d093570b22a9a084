"""What QUIC costs and gives, beside TCP: on a good line and on a bad one. What others notice of attacks is in `test_hostile_bars.py`.

Printed with `-s`; `make quic-bars` runs it. Where two things are compared they take turns, so that a noisy minute hurts both.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import uvloop
from tests.support.lossy_link import Line, lossy_link
from tests.support.machines import missing_for_namespaces
from tests.support.node import NodeProcess, running_node
from tests.support.stream_load import Load, Measured, Way

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SECONDS = float(os.environ.get("HEADRACE_TEST_SECONDS", "6"))
ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "3"))
MIB_PER_CORE_MIN = 30.0
WAL_BYTES = 1 << 30


def say(*words: object) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}]", *words, flush=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", {"wal.capacity.bytes": WAL_BYTES}) as started:
        yield started


def test_thirty_megabytes_a_core(node: NodeProcess) -> None:
    load = Load(node.kafka, node.endpoints["quic"], node.pid)
    load.fill(4)
    for verb in ("produce", "fetch"):
        for streams in (1, 2, 4):
            found: dict[Way, list[Measured]] = {"tcp": [], "quic-one": []}
            for _ in range(ROUNDS):
                for way, measured in found.items():
                    run = getattr(load, verb)
                    measured.append(uvloop.run(run(way, streams=streams, seconds=SECONDS / 2)))
            for way, measured in found.items():
                rate = statistics.median(each.megabytes_per_second for each in measured)
                per_core = statistics.median(each.megabytes_per_node_cpu_second for each in measured)
                say(f"{verb} {way} streams={streams}: {rate:.0f} MiB/s, {per_core:.0f} MiB a second of the node's CPU")
                if way != "tcp":
                    assert per_core >= MIB_PER_CORE_MIN


@pytest.mark.parametrize("congestion", ["cubic", "reno", "bbr"])
def test_a_bad_line(tmp_path: Path, congestion: str) -> None:
    """One percent of the packets lost and 50 ms late in each direction. What TCP does about losses is the system's choice."""
    if (reason := missing_for_namespaces()) is not None:
        pytest.skip(reason)
    with lossy_link(loss=0.01, delay_ms=50, congestion=congestion) as line:
        settings = {
            "wal.capacity.bytes": 1 << 28,
            "listen.kafka": f"{line.near_address}:0",
            "listen.quic": f"{line.near_address}:0",
            "listener.kafka.open": "true",
            "listener.quic.open": "true",
        }
        node = NodeProcess(tmp_path / "data", settings, program=line.at_near(sys.executable, "-m", "headrace"))
        node.start()
        try:
            _drive(line.at_near, node, "fill", "tcp", 4)
            for verb in ("produce", "fetch"):
                for streams in (2, 4):
                    _compare(line, node, verb, streams, is_bar=congestion != "bbr")
        finally:
            node.kill()


def _compare(line: Line, node: NodeProcess, verb: str, streams: int, *, is_bar: bool) -> None:
    found: dict[Way, list[float]] = {"tcp": [], "quic": [], "quic-one": []}
    for _ in range(ROUNDS):
        for way, rates in found.items():
            measured = _drive(line.at_far, node, verb, way, streams)
            assert measured is not None
            rates.append(measured.megabytes_per_second)
    medians = {way: statistics.median(each) for way, each in found.items()}
    say(f"1 % lost, 50 ms: {verb} streams={streams}:", *(f"{way} {rate:.2f} MiB/s" for way, rate in medians.items()))
    if is_bar:
        assert medians["quic"] >= medians["tcp"]


def _drive(at: Callable[..., list[str]], node: NodeProcess, verb: str, way: Way, streams: int) -> Measured | None:
    arguments = [node.kafka, node.endpoints["quic"], str(os.getpid()), verb, way, str(streams), str(SECONDS), "65536"]
    environment = {**os.environ, "PYTHONPATH": "src:."}
    command = at(sys.executable, "-m", "tests.support.stream_load", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{verb} {way} streams={streams}: {done.stderr}"
    return msgspec.json.decode(done.stdout, type=Measured) if done.stdout else None
