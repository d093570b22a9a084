"""Logjam clients: DEALER for requests and messages, PUSH for messages only, SUB for what devices publish.

    with LogjamClient("tcp://localhost:9604") as client:
        client.send("myapp-production", "logs.page", b'{"action": "Home#index"}')
        client.request("myapp-production", "logs.page", b'{"action": "Home#index"}')

ZeroMQ connects in the background and queues up to its high-water mark; `send` never waits for a server. What
does not fit the queue raises `Overloaded`, so the caller decides what to lose. `AsyncLogjamClient` is the same
for code with an event loop.
"""

import asyncio
from types import TracebackType
from typing import Any, Final, TypeVar

import zmq
import zmq.asyncio

from headrace.clock import Clock, SystemClock
from headrace.errors import MalformedRequest, Overloaded, Rejected, TimedOut
from headrace.wire.logjam.compression import Compression, compress
from headrace.wire.logjam.messages import (
    ACCEPTED,
    HEARTBEAT,
    PING_OK,
    DataMessage,
    build_data,
    build_ping,
    parse_data,
)
from headrace.wire.logjam.meta import Meta, decode_meta
from headrace.wire.logjam.sequence import HEARTBEAT_INTERVAL_MS, GapDetector, SequenceNumbers

S = TypeVar("S", bound="zmq.Socket[Any]")

SEND_HIGH_WATER_MARK: Final = 100_000
LINGER_MS: Final = 1_000

DEVICE_NUMBER_OF_CLIENTS: Final = 0
"""Only device processes have a number of their own."""


class BadRequest(Rejected):
    """The server answered 400."""


class _Numbering:
    """Builds messages: the next number, the time, the compressed body."""

    def __init__(self, clock: Clock, compression: Compression) -> None:
        self._clock = clock
        self._compression = compression
        self._sequence = SequenceNumbers()

    def data(self, app_env: str, topic: str, body: bytes) -> list[bytes]:
        compressed = compress(self._compression, body)
        return build_data(app_env.encode(), topic.encode(), compressed, self._meta(self._compression))

    def ping(self, app_env: str) -> list[bytes]:
        return build_ping(app_env.encode(), self._meta(Compression.NONE))

    def _meta(self, compression: Compression) -> Meta:
        return Meta(
            compression=compression,
            device_number=DEVICE_NUMBER_OF_CLIENTS,
            created_ms=self._clock.now_ms(),
            sequence=self._sequence.next(),
        )


class LogjamClient:
    """Sends messages, and requests that wait for 202 or 400, over one DEALER socket. For one thread."""

    def __init__(
        self,
        router: str,
        *,
        compression: Compression = Compression.NONE,
        timeout_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        self._router = router
        self._timeout_ms = timeout_ms
        self._numbering = _Numbering(clock or SystemClock(), compression)
        self._context = zmq.Context()
        self._socket = self._open()

    def send(self, app_env: str, topic: str, body: bytes) -> None:
        """Hand the message to ZeroMQ; nobody answers it."""
        _send_now(self._socket, self._numbering.data(app_env, topic, body))

    def request(self, app_env: str, topic: str, body: bytes) -> None:
        """Returns when the server has accepted the message, which is before it is stored.

        Raises `BadRequest` for 400 and `TimedOut` when no answer came.
        """
        reply = self._exchange([b"", *self._numbering.data(app_env, topic, body)])
        _require_accepted(reply)

    def ping(self, app_env: str) -> str:
        """The server's name."""
        return _host_of(self._exchange(self._numbering.ping(app_env)))

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def __enter__(self) -> "LogjamClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, frames: list[bytes]) -> list[bytes]:
        _send_now(self._socket, frames)
        if not self._socket.poll(self._timeout_ms):
            # A late answer would be taken for the next request's: only a new socket is safe.
            self._socket.close(linger=0)
            self._socket = self._open()
            raise TimedOut(f"no answer from {self._router} in {self._timeout_ms} ms")
        return self._socket.recv_multipart()

    def _open(self) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        return _connect(socket, self._router)


class LogjamPushClient:
    """Sends messages over one PUSH socket: no answers, ever. For one thread."""

    def __init__(self, pull: str, *, compression: Compression = Compression.NONE, clock: Clock | None = None) -> None:
        self._numbering = _Numbering(clock or SystemClock(), compression)
        self._context = zmq.Context()
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        self._socket = _connect(socket, pull)

    def send(self, app_env: str, topic: str, body: bytes) -> None:
        """Waits only for the connection to be made at all; `Overloaded` when the queue is full."""
        _send_now(self._socket, self._numbering.data(app_env, topic, body))

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def __enter__(self) -> "LogjamPushClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLogjamClient:
    """`LogjamClient` for an event loop. Requests may run concurrently; answers come in the order of requests."""

    def __init__(
        self,
        router: str,
        *,
        compression: Compression = Compression.NONE,
        timeout_ms: int = 5_000,
        clock: Clock | None = None,
    ) -> None:
        self._router = router
        self._timeout_ms = timeout_ms
        self._numbering = _Numbering(clock or SystemClock(), compression)
        self._context = zmq.asyncio.Context()
        self._socket = self._open()

    async def send(self, app_env: str, topic: str, body: bytes) -> None:
        await self._socket.send_multipart(self._numbering.data(app_env, topic, body))

    async def request(self, app_env: str, topic: str, body: bytes) -> None:
        _require_accepted(await self._exchange([b"", *self._numbering.data(app_env, topic, body)]))

    async def ping(self, app_env: str) -> str:
        return _host_of(await self._exchange(self._numbering.ping(app_env)))

    async def close(self) -> None:
        self._socket.close()
        self._context.term()

    async def __aenter__(self) -> "AsyncLogjamClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _exchange(self, frames: list[bytes]) -> list[bytes]:
        socket = self._socket
        # Both are queued before anything is awaited, so answers meet their requests in order.
        sending, receiving = socket.send_multipart(frames), socket.recv_multipart()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await sending
                return await receiving
        except TimeoutError as error:
            if socket is self._socket:
                socket.close(linger=0)
                self._socket = self._open()
            raise TimedOut(f"no answer from {self._router} in {self._timeout_ms} ms") from error

    def _open(self) -> zmq.asyncio.Socket:
        return _connect(self._context.socket(zmq.DEALER), self._router)


class LogjamSubscriber:
    """Reads what a device publishes, filtered by app-env prefix, and counts what got lost on the way.

    A device numbers everything it publishes, so with a prefix `gaps` counts what was filtered out too. One that misses six
    heartbeats is connected to anew: a machine that vanished has not closed its connections.
    """

    def __init__(self, pub: str, *, app_env_prefix: str = "", clock: Clock | None = None) -> None:
        self._pub = pub
        self._clock = clock or SystemClock()
        self._context = zmq.Context()
        socket: zmq.Socket[bytes] = self._context.socket(zmq.SUB)
        self._socket = _connect(socket, pub)
        self._socket.subscribe(app_env_prefix.encode())
        if app_env_prefix:
            self._socket.subscribe(HEARTBEAT)
        self.gaps = GapDetector()
        self.heartbeats = 0

    def receive(self, *, timeout_ms: int) -> DataMessage | None:
        """The next message, or None when none came in time. Heartbeats are counted, not returned."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) >= 0:
            self._reconnect_when_silent()
            if not self._socket.poll(min(left_ms, HEARTBEAT_INTERVAL_MS)):
                if left_ms <= HEARTBEAT_INTERVAL_MS:
                    return None
                continue
            frames = self._socket.recv_multipart()
            if len(frames) != 4:
                raise MalformedRequest(f"{len(frames)} frames from a device, not 4")
            meta = decode_meta(frames[3])
            self.gaps.observe(meta.device_number, meta.sequence, now_ms=self._clock.monotonic_ms())
            if frames[0] != HEARTBEAT:
                return parse_data(frames)
            self.heartbeats += 1
        return None

    def _reconnect_when_silent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        silent = self.gaps.stale_devices(now_ms=now_ms)
        if silent:
            self._socket.disconnect(self._pub)
            self._socket.connect(self._pub)
        for device_number in silent:
            self.gaps.expect_again(device_number, now_ms=now_ms)

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()

    def __enter__(self) -> "LogjamSubscriber":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _connect(socket: S, address: str) -> S:
    socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER_MARK)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.connect(address)
    return socket


def _send_now(socket: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
    try:
        socket.send_multipart(frames, flags=zmq.DONTWAIT, copy=True)
    except zmq.Again as error:
        raise Overloaded("the send queue is full, or nobody has been reached yet") from error


def _require_accepted(reply: list[bytes]) -> None:
    # The last frame is the status in every form of reply that servers have used.
    if reply[-1] != ACCEPTED:
        raise BadRequest(reply[-1].decode("utf-8", "replace"))


def _host_of(reply: list[bytes]) -> str:
    if len(reply) != 3 or reply[1] != PING_OK:
        raise BadRequest(reply[-1].decode("utf-8", "replace"))
    return reply[2].decode("utf-8", "replace")
