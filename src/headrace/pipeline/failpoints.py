"""Named places where a test may end the process or the batch, to see what is left behind.

    HEADRACE_FAILPOINT="after write:3"     the third time there, die by SIGKILL: nothing gets a chance to clean up
    HEADRACE_FAILPOINT="after write:1:raise"     raise instead, for tests within one process

Costs a dictionary look-up when the variable is not set.
"""

import os
import signal
from typing import Final

from headrace.errors import Unavailable

VARIABLE: Final = "HEADRACE_FAILPOINT"

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
    "after sink commit",
)

_seen: dict[str, int] = {}


class FailpointReached(Unavailable):
    """A test asked for a failure here."""


def reach(place: str) -> None:
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, rest = wanted.partition(":")
    count, _, mode = rest.partition(":")
    if name != place:
        return
    _seen[wanted] = _seen.get(wanted, 0) + 1
    if _seen[wanted] != int(count or 1):
        return
    if mode == "raise":
        raise FailpointReached(f"failpoint {place}")
    os.kill(os.getpid(), signal.SIGKILL)
