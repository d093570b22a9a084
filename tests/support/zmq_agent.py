"""A bare ZeroMQ peer for the Logjam door: any frames out, any frames in."""

from types import TracebackType

import zmq

TIMEOUT_MS = 60_000
LINGER_MS = 30_000


class Peer:
    def __init__(self, kind: int, address: str, *, subscribe: bytes | None = None) -> None:
        self._context = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
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
