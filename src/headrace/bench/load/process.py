"""Starting load processes and hearing from them: the other end of the package's little conversation."""

import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

import msgspec

from headrace.bench.errors import LoadFailed
from headrace.bench.load.jobs import AnyJob, Outcome

_KILL_SECONDS_MAX: Final = 10
_SILENT_SECONDS_MAX: Final = 300
"""Longer than any warm-up or window; a load process that says nothing for so long hangs."""


def run_load(jobs: Sequence[AnyJob], *, on_begin: Callable[[], None] = lambda: None) -> list[Outcome]:
    """Run `jobs` side by side; their measured parts begin together, right after `on_begin`.

    Outcomes come in the order of the jobs. Raises LoadFailed if any job met a problem.
    """
    # A file, not a pipe: nobody reads it while the load runs, and a full pipe would stop the load.
    with tempfile.TemporaryFile("w+") as complaints, _started(jobs, complaints) as processes:
        for process in processes:
            if _line(process) != "ready":
                raise LoadFailed(f"a load process ended before it was ready: {_last_line(complaints)}")
        on_begin()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        lines = [_line(process) for process in processes]
        if not all(lines):
            raise LoadFailed(f"a load process ended without an outcome: {_last_line(complaints)}")
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    if problems:
        raise LoadFailed("; ".join(problems[:5]))
    return outcomes


@contextmanager
def _started(jobs: Sequence[AnyJob], complaints: TextIO) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "headrace.bench.load"]
    processes = [
        subprocess.Popen(
            [*command, msgspec.json.encode(job).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
        for job in jobs
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=_KILL_SECONDS_MAX)


def _line(process: subprocess.Popen[str]) -> str:
    """The next line it says; empty when it has ended, or been silent for too long and was ended."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], _SILENT_SECONDS_MAX)
    return process.stdout.readline().strip() if readable else ""


def _last_line(complaints: TextIO) -> str:
    complaints.seek(0)
    return complaints.read().strip().rpartition("\n")[2] or "it said nothing"
