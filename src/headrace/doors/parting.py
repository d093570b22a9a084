"""The end of a door: whoever waits for an answer is given a moment to hear it."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from headrace.doors.connection import FramedConnection
from headrace.doors.listening import Listener

_SECONDS_MAX: Final = 5.0
_TICK_S: Final = 0.01


async def part(listeners: Iterable[Listener], connections: Collection[FramedConnection]) -> None:
    """Take no more clients and no more requests; return when nobody is owed an answer, or at the deadline.

    Connections without a request end meanwhile. The others are still open: to close them is left to the door.
    """
    for listener in listeners:
        if listener.server is not None:
            listener.server.close()
    for connection in list(connections):
        connection.finish()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SECONDS_MAX
    # Polled, since a goodbye is rare and nobody else needs to hear of the last answer.
    while any(each.owes_answer for each in connections):
        if loop.time() >= deadline:
            break
        await asyncio.sleep(_TICK_S)
    await asyncio.sleep(0)  # Answers leave at the end of the turn in which they are given.
