"""Named places where a test may end a process or a batch, to see what is left behind.

    HEADRACE_FAILPOINT="after write:3"           the third time there, die by SIGKILL: nothing gets a chance to clean up
    HEADRACE_FAILPOINT="after write:1:raise"     raise instead, for tests within one process
    HEADRACE_FAILPOINT="@armed"                  the file `armed` says which, and may change while the process runs
    after write:1:hold                           in such a file: write our process id to `armed.reached` and stand still
                                                 until that is removed; meanwhile others can be killed just here

Costs a dictionary look-up when the variable is not set.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

from headrace.errors import Unavailable

VARIABLE: Final = "HEADRACE_FAILPOINT"
REACHED_SUFFIX: Final = ".reached"
_HOLD_POLL_S: Final = 0.02

PLACES: Final = (
    "before batch",
    "before write",
    "after write",
    "after commit",
    "between dead letters and rows",
    "after batch",
    "replay noted",
    "replay accepted",
    "before sink commit",
    "in sink transaction",
    "after sink commit",
)

_seen: dict[str, int] = {}


class FailpointReached(Unavailable):
    """A test asked for a failure here."""


def reach(place: str) -> None:
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    armed = Path(wanted[1:]) if wanted.startswith("@") else None
    if armed is not None:
        wanted = _read(armed)
    name, _, rest = wanted.partition(":")
    count, _, mode = rest.partition(":")
    if name != place:
        return
    _seen[wanted] = _seen.get(wanted, 0) + 1
    if _seen[wanted] != int(count or 1):
        return
    if mode == "raise":
        raise FailpointReached(f"failpoint {place}")
    if mode == "hold" and armed is not None:
        del _seen[wanted]
        _hold(armed)
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _hold(armed: Path) -> None:
    reached = armed.with_name(armed.name + REACHED_SUFFIX)
    temporary = reached.with_suffix(".tmp")
    temporary.write_text(str(os.getpid()))
    temporary.rename(reached)
    while reached.exists():
        time.sleep(_HOLD_POLL_S)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
