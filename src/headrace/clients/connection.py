"""One TCP connection of a client whose protocol answers in the order it was asked.

Frames are handed to callers in the order in which they called `receive`; `request` is a write and a `receive`.
Several requests may be under way at once. The connection never reconnects: its owner makes a new one.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from headrace.errors import HeadraceError, Invalid
from headrace.wire.framing import Frame, FrameReader

BACKLOG_FRAMES_MAX: Final = 1_000
"""Frames nobody has asked for yet (a stream whose reader is slow) before the socket is no longer read."""


_PORT_MAX: Final = 65_535


class ConnectionLost(ConnectionResetError):
    """The server closed the connection, or it broke, before the answer came."""


class CannotConnect(ConnectionError):
    """Nobody answers at that address."""


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, with brackets around an IPv6 host."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise Invalid(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


class FramedConnection(asyncio.Protocol):
    """Made by `open_connection`; it is its own asyncio protocol."""

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self._waiters: deque[asyncio.Future[Frame]] = deque()
        self._backlog: deque[Frame] = deque()
        self._failure: Exception | None = None
        self._is_paused = False
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    @property
    def requests_active(self) -> int:
        return len(self._waiters)

    async def request(self, frame: bytes) -> Frame:
        reply = self.start(frame)
        await self._writable.wait()
        return await reply

    def start(self, frame: bytes) -> asyncio.Future[Frame]:
        """Write `frame` and claim the next answer that nobody has claimed yet."""
        self.write(frame)
        return self.receive()

    def write(self, frame: bytes) -> None:
        if self._failure is not None:
            raise ConnectionLost("connection is closed") from self._failure
        assert self._transport is not None
        self._transport.write(frame)

    def receive(self) -> asyncio.Future[Frame]:
        waiter: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        if self._backlog:
            waiter.set_result(self._backlog.popleft())
            self._resume()
        elif self._failure is not None:
            waiter.set_exception(ConnectionLost(str(self._failure)))
        else:
            self._waiters.append(waiter)
        return waiter

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.receive(data)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._deliver(frame)
        except HeadraceError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._fail(exc or ConnectionLost("connection closed by the server"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _deliver(self, frame: Frame) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(frame)
            # An answer whose caller gave up still answers that caller's request: it is not passed on.
            return
        self._backlog.append(frame)
        if len(self._backlog) >= BACKLOG_FRAMES_MAX and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and len(self._backlog) < BACKLOG_FRAMES_MAX // 2 and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        for waiter in self._waiters:
            if not waiter.done():
                lost = ConnectionLost(str(self._failure))
                lost.__cause__ = self._failure
                waiter.set_exception(lost)
        self._waiters.clear()


async def open_connection(address: str, reader: FrameReader) -> FramedConnection:
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(lambda: FramedConnection(reader), host, port)
    except OSError as error:
        raise CannotConnect(f"no node at {address}: {words_of(error)}") from error
    return connection


def words_of(error: OSError) -> str:
    """In the system's words; asyncio has its own for a refused connection, and they do not say that it was refused.

    Errors of TLS have numbers that are not the system's.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


class Link:
    """The way to one address: connects when needed, once for all callers who wait for it, and again after a loss."""

    def __init__(self, address: str, new_reader: Callable[[], FrameReader]) -> None:
        self._address = address
        self._new_reader = new_reader
        self._connection: FramedConnection | None = None
        self._connecting: asyncio.Future[FramedConnection] | None = None

    @property
    def connection(self) -> FramedConnection | None:
        return self._connection if self._connection is not None and self._connection.is_open else None

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    async def connect(self) -> FramedConnection:
        if (connection := self.connection) is not None:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(open_connection(self._address, self._new_reader()))
        connecting = self._connecting
        try:
            # Shielded: a caller that gives up must not take the connection from the others.
            self._connection = await asyncio.shield(connecting)
        finally:
            if self._connecting is connecting and connecting.done():
                self._connecting = None
        return self._connection

    def disconnect(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
