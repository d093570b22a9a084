"""Whether anybody listens to an XPUB socket, which subscribers cannot tell from a PUB."""

from typing import Final

import zmq

_SUBSCRIBED: Final = 1
_CHANGES_AT_ONCE: Final = 1_000


class Subscriptions:
    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self.count = 0

    def heed(self) -> None:
        """Read who has come and gone since the last time."""
        for _ in range(_CHANGES_AT_ONCE):  # The inlet comes back for the rest.
            try:
                change = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            if change:
                self.count += 1 if change[0] == _SUBSCRIBED else -1
