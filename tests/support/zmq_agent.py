"""A bare ZeroMQ peer for the Logjam door: any frames out, any frames in."""

from types import TracebackType

import zmq

TIMEOUT_MS = 60_000
LINGER_MS = 30_000


class Keys:
    """A key pair of CURVE, as ZeroMQ writes them."""

    def __init__(self) -> None:
        self.public, self.secret = zmq.curve_keypair()


class Peer:
    def __init__(
        self,
        kind: int,
        address: str,
        *,
        subscribe: bytes | None = None,
        keys: Keys | None = None,
        server: bytes | None = None,
        linger_ms: int = LINGER_MS,
    ) -> None:
        """With `keys`, and the public one of the `server`, it speaks CURVE."""
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, linger_ms)
        if keys is not None and server is not None:
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, server)
        if subscribe is not None:
            self.socket.setsockopt(zmq.SUBSCRIBE, subscribe)
        self.socket.connect(f"tcp://{address}")

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def receive(self, timeout_ms: int = TIMEOUT_MS) -> list[bytes] | None:
        """The next message, or None when none comes."""
        return self.socket.recv_multipart() if self.socket.poll(timeout_ms) else None

    def ask(self, *frames: bytes) -> list[bytes]:
        self.send(*frames)
        return self.next()

    def next(self) -> list[bytes]:
        reply = self.receive()
        assert reply is not None, "no reply"
        return reply

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
