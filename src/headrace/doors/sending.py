"""Answers on their way out: straight to the sockets in C where it was built, through the transports elsewhere.

`send_ready(connections, slots_max)` sends what each connection has ready; `slots_max` is how many slots make one full.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.compiled import compiled

if TYPE_CHECKING:
    from headrace.doors.connection import FramedConnection

    SendReady = Callable[[list[FramedConnection], int], None]


def send_through_transports(connections: "list[FramedConnection]", slots_max: int) -> None:
    for connection in connections:
        connection.flush()


def _load() -> "SendReady":
    module = compiled("headrace.doors._sending")
    found: SendReady = module.send_ready if module is not None else send_through_transports
    return found


send_ready: Final = _load()
