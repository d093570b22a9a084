"""Named places where a test may kill the process: `HEADRACE_FAILPOINT="after write:3"` dies at the third time there.

Free when the variable is not set. Dying is SIGKILL, so nothing gets a chance to clean up.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "HEADRACE_FAILPOINT"

_seen: dict[str, int] = {}


def reach(place: str) -> None:
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, count = wanted.partition(":")
    if name != place:
        return
    _seen[place] = _seen.get(place, 0) + 1
    if _seen[place] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
