"""ZMTP 3: how ZeroMQ puts messages on a TCP connection. For reading captures; live sockets leave it to ZeroMQ.

greeting: FF, 8 bytes, 7F, major, minor, mechanism 20, as-server 1, filler 31       64 bytes in all
frame:    flags 1 (bit 0 more, bit 1 long size, bit 2 command), size 1 or 8, body
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import MalformedRequest, TooLarge

GREETING_SIZE: Final = 64
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
_MORE, _LONG, _COMMAND = 1, 2, 4
_LONG_SIZE: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Greeting:
    version: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class Command:
    """What the sockets say to each other: READY, SUBSCRIBE, PING ..."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Multipart:
    frames: list[bytes]


Item = Greeting | Command | Multipart


@dataclass(slots=True)
class ZmtpReader:
    """One direction of a connection: feed it with `receive`, drain it with `next_item`."""

    _buffer: bytearray = field(default_factory=bytearray)
    _frames: list[bytes] = field(default_factory=list)
    _has_greeted: bool = False
    position: int = 0
    """How many bytes have been understood so far."""

    def receive(self, data: bytes) -> None:
        self._buffer += data

    def next_item(self) -> Item | None:
        """The next greeting, command or whole message, or None until more bytes arrive."""
        if not self._has_greeted:
            return self._greet()
        while (frame := self._next_frame()) is not None:
            flags, body = frame
            if flags & _COMMAND:
                return _command(body)
            self._frames.append(body)
            if not flags & _MORE:
                frames, self._frames = self._frames, []
                return Multipart(frames)
        return None

    def finish(self) -> None:
        """The stream has ended: raises `MalformedRequest` if that was inside a message."""
        if self._buffer or self._frames:
            raise MalformedRequest(f"the stream ends inside a message, {len(self._buffer)} bytes into a frame")

    def _greet(self) -> Greeting | None:
        if len(self._buffer) < GREETING_SIZE:
            return None
        greeting = self._take(GREETING_SIZE)
        if greeting[0] != 0xFF or greeting[9] != 0x7F:
            raise MalformedRequest("no ZMTP greeting")
        if greeting[10] < 3:
            raise MalformedRequest(f"ZMTP {greeting[10]} is too old; 3 is understood")
        self._has_greeted = True
        mechanism = greeting[12:32].rstrip(b"\0").decode("ascii", "replace")
        return Greeting(f"{greeting[10]}.{greeting[11]}", mechanism)

    def _next_frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        flags, header_size = buffer[0], 9 if buffer[0] & _LONG else 2
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise MalformedRequest(f"ZMTP frame with flags {flags:#04x}")
        if len(buffer) < header_size:
            return None
        size = _LONG_SIZE.unpack_from(buffer, 1)[0] if flags & _LONG else buffer[1]
        if size > FRAME_BYTES_MAX:
            raise TooLarge(f"ZMTP frame of {size} bytes, limit {FRAME_BYTES_MAX}")
        if len(buffer) < header_size + size:
            return None
        return flags, self._take(header_size + size)[header_size:]

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.position += size
        return taken


def _command(body: bytes) -> Command:
    if not body or len(body) < 1 + body[0]:
        raise MalformedRequest("ZMTP command without a name")
    return Command(body[1 : 1 + body[0]].decode("ascii", "replace"), body[1 + body[0] :])
