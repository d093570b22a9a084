"""Programs in Go for interop tests, built with the modules that their `go.sum` pins. Where Go or the network is missing, tests are skipped."""

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "go_programs"
BUILD_SECONDS_MAX = 280


def go_program(name: str, directory: Path) -> Path:
    """The program, built into `directory`; Go itself keeps what it compiled for the next time."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    target = directory / name
    # -mod=readonly: what is not pinned is not fetched.
    command = ["go", "build", "-mod=readonly", "-o", str(target), "."]
    try:
        subprocess.run(command, cwd=PROGRAMS / name, check=True, capture_output=True, timeout=BUILD_SECONDS_MAX)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = error.stderr.decode() if error.stderr else str(error)
        pytest.skip(f"Go could not build {name}: {said[-300:]}")
    return target
