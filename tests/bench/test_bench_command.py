"""`headrace bench` from end to end, at the smallest scale: real broker, real load, a page at the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

IDLE_BYTES_MAX = 8 * 1024
"""What the protocol's document names as the overhead of an idle connection."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.requirement("R0.98", "R0.99")
def test_the_bench_reports_the_rustlog_door_and_writes_its_page(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("headrace")),
            *("bench", "rustlog", "idle", "--quick", "--rounds", "1", "--seconds", "2", "--json"),
            *("--output", str(tmp_path / "bench"), "--docs", str(docs)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    measured = {(one["workload"], one["case"]): one["metrics"] for one in json.loads(done.stdout)["measurements"]}
    request = measured["rustlog", "produce 1 x 100 B"]
    assert min(request["frame_rate"], request["message_rate"], request["request_rate"]) > 0
    assert request["parse_cpu"] + request["logic_cpu"] + request["serialise_cpu"] == pytest.approx(
        request["request_cpu"]
    )
    idle = measured["idle", "2,000 connections, rustlog door"]
    assert idle["connection_bytes"] * 1024 < IDLE_BYTES_MAX
    page = (docs / "benchmarks.md").read_text()
    assert "## RUSTLOG: The RustLog door" in page
    assert "## IDLE: Idle connections" in page
