"""All processes of one session, and their end. Imports nothing of Spark.

The process that runs queries has a session of its own, and everything below it belongs to it: the JVM, and Spark's Python workers, which
leave the process group of whoever started them. So ending the group is not enough.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_ROUNDS: Final = 5
"""A process may start another just before it is killed; the dead stay in the list until they are waited for."""


def end_session(session_id: int, *, spared: int | None = None) -> None:
    """Kill every process of the session but `spared`. None of them has anything to save."""
    for _ in range(_ROUNDS):
        members = [each for each in _members(session_id) if each != spared]
        for process_id in members:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        if not members:
            return


def _members(session_id: int) -> Iterator[int]:
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            with suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == session_id:
                    yield int(entry.name)
