"""Answers on their way out: straight to the sockets in C where it was built, through the transports elsewhere.

`send_ready(connections, slots_max)` sends what each connection has ready; `slots_max` is how many slots make one full.
HEADRACE_PURE=1 in the environment switches the compiled one off.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.doors.connection import FramedConnection

    SendReady = Callable[[list[FramedConnection], int], None]


def send_through_transports(connections: "list[FramedConnection]", slots_max: int) -> None:
    for connection in connections:
        connection.flush()


def _load() -> "SendReady":
    if os.environ.get("HEADRACE_PURE"):
        return send_through_transports
    try:
        from headrace.doors import _sending
    except ImportError:
        return send_through_transports
    return _sending.send_ready


send_ready: Final = _load()
