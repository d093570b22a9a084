"""What systemd, or whoever else starts us as `Type=notify`, is told: that we serve, and that we stop (sd_notify(3)).

A datagram to the socket that `NOTIFY_SOCKET` names. Without one nothing is said.
"""

import socket
from collections.abc import MutableMapping
from typing import Final

from headrace.telemetry.logging import get_logger

_VARIABLE: Final = "NOTIFY_SOCKET"

log = get_logger(__name__)


class ServiceManager:
    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Takes the variable out: what we start is not us, and must not speak for us."""
        address = environ.pop(_VARIABLE, "")
        # An @ stands for the null byte with which abstract addresses begin.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                # A manager that does not listen must not hold us up.
                connection.setblocking(False)
                connection.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("the service manager was not told", state=state, reason=str(error))
