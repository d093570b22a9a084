"""Somebody who listens at a port, and says what a test wants to hear."""

import socket
import struct
import threading
from collections.abc import Callable


class Listener:
    """Takes one connection after the other, and answers each with what `answer` makes of the first bytes that came."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                asked = connection.recv(1024)
                answer = self._answer(asked)
                if answer is None:
                    connection.recv(1024)  # silent until the other side gives up
                else:
                    connection.sendall(answer)


def as_kafka(asked: bytes) -> bytes:
    return struct.pack(">i4shi", 10, asked[8:12], 0, 0)
