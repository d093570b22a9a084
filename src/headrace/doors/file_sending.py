"""Answers that have ranges of files among their pieces: the socket gets those from the system's own memory.

What a socket does not take at once is sent as it makes room. Until then nothing else may be sent on that connection: whoever
starts one of these waits for its end.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headrace.file_range import FileRange
from headrace.records.batch import Buffer, Piece

_TURN_BYTES: Final = 4 * 1024 * 1024
"""Sent in one turn of the loop, however much the socket takes: about half a millisecond."""


def in_memory(pieces: Sequence[Piece]) -> list[Buffer]:
    """The same answer as bytes, for a connection that cannot be handed a file. `OSError` when a file has lost some."""
    return [piece.read() if isinstance(piece, FileRange) else piece for piece in pieces]


def has_files(pieces: Sequence[Piece]) -> bool:
    return any(isinstance(piece, FileRange) for piece in pieces)


class FileSending:
    """The rest of an answer, on its way through a descriptor of its own for the same socket."""

    def __init__(self, descriptor: int, pieces: Sequence[Piece], on_end: Callable[[str | None], None]) -> None:
        """`on_end` is called once, from the loop: with None when everything is sent, else with what went wrong."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=os.dup(descriptor))
        self._pieces = deque(pieces)
        self._is_waiting = False
        self._on_end: Callable[[str | None], None] | None = on_end

    def run(self) -> None:
        """Send what the socket takes now; the loop calls this again when it takes more."""
        try:
            self._send()
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(str(error))
            return
        if self._pieces:
            self._wait()
        else:
            self._end(None)

    def close(self) -> None:
        """Nobody waits for it any more."""
        self._on_end = None
        self._pieces.clear()
        if self._is_waiting:
            self._is_waiting = False
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
        self._socket.close()

    def _end(self, reason: str | None) -> None:
        on_end = self._on_end
        self.close()
        if on_end is not None:
            on_end(reason)

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self.run)

    def _send(self) -> None:
        left = _TURN_BYTES
        while self._pieces and left > 0:
            piece = self._pieces[0]
            if isinstance(piece, FileRange):
                sent = os.sendfile(self._socket.fileno(), piece.file.descriptor, piece.position, len(piece))
                if sent == 0:
                    raise OSError(f"{len(piece)} bytes at {piece.position} are gone: the file was cut short")
                rest: Piece = FileRange(piece.file, piece.position + sent, len(piece) - sent, piece.end_offset)
            else:
                more = socket.MSG_MORE if len(self._pieces) > 1 else 0
                sent = self._socket.send(piece, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL | more)
                rest = memoryview(piece)[sent:]
            left -= sent
            if len(rest):
                self._pieces[0] = rest
            else:
                self._pieces.popleft()
