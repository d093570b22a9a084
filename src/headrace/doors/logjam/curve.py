"""CURVE for Logjam's sockets: what is sent is encrypted, and whoever sends it is known by their key (ZeroMQ's ZAP, RFC 27).

- Fails closed: a socket that asks for CURVE takes nobody while nobody answers for it here, and no other mechanism.
- A connection is known by its public key, not by a name: who that is is looked up for each message, so a key that is taken out of the
  file is nobody's from then on. Subscribers that are connected stay so; new ones are turned away.
- The file of clients is read again when it changes. One that cannot be read is said, and the former clients stay.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog
import zmq
from zmq.utils import z85

from headrace.broker.access.words import Principal, parse_principal
from headrace.errors import Fault, Invalid

KEY_LENGTH: Final = 40
CLIENTS_BYTES_MAX: Final = 8 * 1024 * 1024
_DOMAIN: Final = b"headrace"
_ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"
_REQUEST_FRAMES: Final = 9
"""Of a request for CURVE, with the two that a ROUTER sees before it."""
_LOOK_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class Curve:
    """One door's. Sockets are made ready by `protect` before they are bound."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", key_file: str, clients_file: str) -> None:
        self._clients_file = Path(clients_file)
        try:
            self._secret = read_secret(Path(key_file))
        except (OSError, Invalid) as error:
            raise Fault(f"listener.logjam.curve.key: {key_file}: {error}") from error
        try:
            self._stamp = self._look()
            self._clients = read_clients(self._clients_file)
        except (OSError, Invalid) as error:
            raise Fault(f"listener.logjam.curve.clients: {clients_file}: {error}") from error
        self._looked_s = time.monotonic()
        self.refused_total = 0
        self._loop = asyncio.get_running_loop()
        self._zap: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(_ZAP_ADDRESS)
        self._descriptor = int(self._zap.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._heed)

    def protect(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        # Without this ZeroMQ lets everybody in where nobody answers for the domain.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def principal_of(self, key: str) -> Principal | None:
        """Whose key it is; None for one that is nobody's."""
        if time.monotonic() - self._looked_s >= _LOOK_SECONDS:
            self._refresh()
        return self._clients.get(key)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._zap.close(linger=0)

    def _heed(self) -> None:
        while int(self._zap.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._answer(self._zap.recv_multipart(zmq.DONTWAIT))

    def _answer(self, frames: list[bytes]) -> None:
        """Only libzmq asks here. What is not as it asks is refused all the same."""
        if len(frames) < 4:
            return
        is_curve = len(frames) == _REQUEST_FRAMES and frames[2] == _ZAP_VERSION and frames[7] == b"CURVE"
        key = z85.encode(frames[8]).decode() if is_curve and len(frames[8]) == 32 else ""
        is_known = self.principal_of(key) is not None
        if not is_known:
            self.refused_total += 1
            log.info("key refused", door="logjam", address=frames[5].decode(errors="replace") if is_curve else "")
        status = [b"200", b"OK", key.encode()] if is_known else [b"400", b"not known", b""]
        self._zap.send_multipart([frames[0], b"", _ZAP_VERSION, frames[3], *status, b""], zmq.DONTWAIT)

    def _refresh(self) -> None:
        self._looked_s = time.monotonic()
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._clients = read_clients(self._clients_file)
        except (OSError, Invalid) as error:
            log.error("clients not read, the former ones stay", path=str(self._clients_file), reason=str(error))
        else:
            log.info("clients read anew", path=str(self._clients_file), count=len(self._clients))

    def _look(self) -> tuple[int, int]:
        found = self._clients_file.stat()
        return found.st_mtime_ns, found.st_size


def read_secret(path: Path) -> bytes:
    """A secret key as ZeroMQ writes it (Z85); raises `Invalid`, without the key in its words."""
    with path.open("rb") as file:
        key = file.read(4096).strip()
    try:
        zmq.curve_public(key)
    except (ValueError, zmq.ZMQError, TypeError) as error:
        raise Invalid(f"expected a secret key of CURVE, {KEY_LENGTH} characters") from error
    return key


def read_clients(path: Path) -> Mapping[str, Principal]:
    """Who each public key is: lines of a key and a principal, as `User:agents`. Raises `Invalid` and `OSError`."""
    with path.open("rb") as file:
        data = file.read(CLIENTS_BYTES_MAX + 1)
    if len(data) > CLIENTS_BYTES_MAX:
        raise Invalid(f"larger than {CLIENTS_BYTES_MAX} bytes")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise Invalid("not text") from error
    clients: dict[str, Principal] = {}
    for number, line in enumerate(lines, 1):
        key, _, name = line.strip().partition(" ")
        # No comments behind "#": it is a character of keys.
        if not key:
            continue
        if len(key) != KEY_LENGTH or not name.strip() or key in clients:
            raise Invalid(
                f"line {number}: expected a public key of {KEY_LENGTH} characters, once, and a principal as User:agents"
            )
        clients[key] = parse_principal(name.strip())
    return clients
