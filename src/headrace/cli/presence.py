"""Whether anybody listens at an address. Kafka's client would go on trying for half a minute, then say that it timed out."""

import socket
from typing import Final

from headrace.clients.connection import split_address
from headrace.errors import Unavailable

CONNECT_SECONDS_MAX: Final = 5.0


def require_node(bootstrap: str) -> None:
    """`Unavailable` unless one of the addresses, separated by commas, takes a connection."""
    reason = "no address"
    for address in bootstrap.split(","):
        try:
            socket.create_connection(split_address(address.strip()), CONNECT_SECONDS_MAX).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise Unavailable(f"no node at {bootstrap}: {reason}")
