"""A process of strangers: logs in over and over, or floods a listener with connections that never do. Told when by its standard input."""

import base64
import hashlib
import hmac
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self

from tests.support.raw_kafka import Closed, RawKafka

from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse

MECHANISM: Final = "SCRAM-SHA-256"
USER: Final = "alice"
PASSWORD: Final = "wood and water"
LOGINS: Final = "logins"
FLOOD: Final = "flood"
_AT_ONCE: Final = 100


class LoginLoad:
    """The process, ready to work; `run` works for so long."""

    def __init__(self, kind: str, address: str) -> None:
        command = [sys.executable, "-m", "tests.support.login_load", kind, address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        self.run(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, seconds: float) -> int:
        """How many connections there were."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class _Logins:
    """The salted password is kept, as clients keep it: what is measured is the broker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def go(self) -> None:
        with RawKafka(self._address) as client:
            assert client.call(SaslHandshakeRequest(MECHANISM), 1, SaslHandshakeResponse).error_code == 0
            first = f"n={USER},r=clients"
            said = self._step(client, f"n,,{first}")
            nonce, salt, rounds = (part.partition("=")[2] for part in said.split(","))
            final = f"c=biws,r={nonce}"
            salted = self._salt(base64.b64decode(salt), int(rounds))
            key = hmac.digest(salted, b"Client Key", "sha256")
            stored = hashlib.sha256(key).digest()
            signed = hmac.digest(stored, f"{first},{said},{final}".encode(), "sha256")
            proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signed, strict=True))).decode()
            assert self._step(client, f"{final},p={proof}").startswith("v=")

    def _step(self, client: RawKafka, message: str) -> str:
        answer = client.call(SaslAuthenticateRequest(message.encode()), 2, SaslAuthenticateResponse)
        assert answer.error_code == 0, answer.error_message
        return bytes(answer.auth_bytes).decode()

    def _salt(self, salt: bytes, rounds: int) -> bytes:
        if (salt, rounds) not in self._salted:
            self._salted[salt, rounds] = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, rounds)
        return self._salted[salt, rounds]


class _Flood:
    """Connections that say something of a frame and never the rest; the oldest makes room."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host, int(port))
        self._open: list[socket.socket] = []

    def go(self) -> None:
        made = socket.create_connection(self._place, 1)
        made.sendall(b"\0\0\xff\xff" + bytes(200))
        self._open.append(made)
        if len(self._open) > _AT_ONCE:
            self._open.pop(0).close()


def main() -> None:
    kind, address = sys.argv[1:]
    work = _Logins(address) if kind == LOGINS else _Flood(address)
    for line in sys.stdin:
        until, done = time.monotonic() + float(line), 0
        while time.monotonic() < until:
            try:
                work.go()
            except (Closed, OSError):
                continue  # Turned away: that is an answer, too.
            done += 1
        print(done, flush=True)


if __name__ == "__main__":
    main()
