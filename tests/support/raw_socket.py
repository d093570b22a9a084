"""A TCP client that knows nothing: bytes out, bytes in, and whether the other side has hung up."""

import socket
import struct
from types import TracebackType

TIMEOUT_S = 60.0


class RawSocket:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_slowly(self, data: bytes) -> None:
        """One byte per segment."""
        for byte in data:
            self.socket.sendall(bytes([byte]))

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, or fewer at the end of the stream."""
        parts: list[bytes] = []
        while size and (part := self.socket.recv(min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read_frame(self, header: str) -> tuple[tuple[int, ...], bytes]:
        """Header fields (the last is the payload's size) and payload."""
        layout = struct.Struct(header)
        raw = self.read(layout.size)
        if len(raw) < layout.size:
            raise EOFError("the server closed the connection")
        fields = layout.unpack(raw)
        return fields, self.read(fields[-1])

    def is_closed_by_peer(self) -> bool:
        """Whether the server has ended the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "RawSocket":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
