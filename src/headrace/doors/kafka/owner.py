"""The owner's way in: Kafka's protocol on a socket in the data directory, for whoever may open files there.

They could read the records on the disk and the rules in the metastore, so nothing is kept from them: they make the first user,
and find a way back in when the last administrator has been locked out.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headrace.broker.access.service import OWNER
from headrace.doors.listening import Listener
from headrace.doors.settings import ListenerSettings

SOCKET_NAME: Final = "control.sock"
_BACKLOG: Final = 16


async def open_owner_socket(directory: Path, make: Callable[[Listener], asyncio.BaseProtocol]) -> Listener:
    """The directory is this process's alone, and others may not look into it: so neither may they connect."""
    listener = Listener(ListenerSettings(name="owner", door="kafka", listen=SOCKET_NAME))
    listener.principal = OWNER
    # One that a killed node has left behind.
    remove_owner_socket(directory)
    with reachable(directory) as short:
        listener.server = await asyncio.get_running_loop().create_unix_server(
            lambda: make(listener), f"{short}/{SOCKET_NAME}", backlog=_BACKLOG
        )
    (directory / SOCKET_NAME).chmod(0o600)
    return listener


def remove_owner_socket(directory: Path) -> None:
    """Nobody answers there any more: what is left of a node can be copied like any files."""
    (directory / SOCKET_NAME).unlink(missing_ok=True)


@contextlib.contextmanager
def reachable(directory: Path) -> Iterator[str]:
    """A name of `directory` that is short enough: the address of a socket has no more than 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
