"""Frames out of a byte stream, for the protocols whose messages carry a length in front.

A `FrameReader` is fed with whatever the network delivered and gives back whole frames. A length is judged
before a single byte of its payload is waited for, and memory grows only with bytes that really arrived, so a
lying header costs nothing. It knows neither sockets nor what a payload means.
"""

from struct import Struct
from typing import NamedTuple

from headrace.errors import MalformedRequest, TooLarge


class Frame(NamedTuple):
    """One frame: the fields of its header (the last of them is the payload's size) and the payload."""

    header: tuple[int, ...]
    payload: bytes


class EmptyFrame(MalformedRequest):
    """A frame of zero bytes, where the protocol asks for at least one."""


class IncompleteFrame(MalformedRequest):
    """The stream ended inside a frame."""


class FrameReader:
    """One peer's byte stream: feed it with `receive`, drain it with `next_frame`."""

    __slots__ = ("_buffer", "_header", "_needed", "_payload_bytes_max", "_payload_bytes_min", "_position", "_tail")

    def __init__(self, header: Struct, *, payload_bytes_max: int, payload_bytes_min: int = 0) -> None:
        self._header = header
        self._payload_bytes_min = payload_bytes_min
        self._payload_bytes_max = payload_bytes_max
        self._buffer: bytes = b""
        self._position = 0
        # What arrived behind `_buffer`: kept apart, so that a large frame in a thousand pieces is joined once.
        self._tail = bytearray()
        self._needed = header.size

    @property
    def pending_bytes(self) -> int:
        return len(self._buffer) - self._position + len(self._tail)

    def receive(self, data: bytes) -> None:
        if self._position == len(self._buffer) and not self._tail:
            self._buffer = data
            self._position = 0
        else:
            self._tail += data

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes arrive.

        Raises `TooLarge` or `EmptyFrame` for a header that breaks the limits; the stream is lost then.
        """
        start = self._position
        buffer = self._buffer
        size = self._header.size
        if len(buffer) - start < self._needed:
            if not self._tail or len(buffer) - start + len(self._tail) < self._needed:
                return None
            buffer = self._join()
            start = 0
        fields = self._header.unpack_from(buffer, start)
        payload_size = fields[-1]
        if payload_size > self._payload_bytes_max:
            raise TooLarge(f"frame of {payload_size} bytes, limit {self._payload_bytes_max}")
        if payload_size < self._payload_bytes_min:
            raise EmptyFrame("empty frame")
        end = start + size + payload_size
        if end > len(buffer):
            self._needed = size + payload_size
            if len(buffer) - start + len(self._tail) < self._needed:
                return None
            return self.next_frame()
        self._needed = size
        self._position = end
        return Frame(fields, buffer[start + size : end])

    def finish(self) -> None:
        """The peer has closed its side: raises `IncompleteFrame` if it did so inside a frame."""
        if self.pending_bytes:
            raise IncompleteFrame(f"stream ended inside a frame, {self.pending_bytes} bytes in")

    def _join(self) -> bytes:
        self._buffer = self._buffer[self._position :] + bytes(self._tail)
        self._position = 0
        self._tail = bytearray()
        return self._buffer
