"""`make pure` and `make fuzz-kernels` say what they want in the environment: it must reach the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.compiled import compiled

ROOT = Path(__file__).resolve().parents[2]
ASKING = "tests/unit/test_pure_runs.py::test_what_this_run_was_told"


def test_a_pure_run_has_no_kernels_and_a_fuzzer_its_time() -> None:
    told = {"HEADRACE_PURE": "1", "HEADRACE_FUZZ_SECONDS": "60", "HEADRACE_LISTEN_KAFKA": "127.0.0.1:1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", ASKING]
    environment = {**os.environ, **told, "HEADRACE_TEST_TOLD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif("HEADRACE_TEST_TOLD" not in os.environ, reason="for the test above")
def test_what_this_run_was_told() -> None:
    assert compiled("headrace.log._append") is None
    assert os.environ.get("HEADRACE_FUZZ_SECONDS") == "60"
    assert "HEADRACE_LISTEN_KAFKA" not in os.environ
