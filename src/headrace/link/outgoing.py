"""One connection to another broker: calls go out in the order in which they are made, and fail together when it breaks.

A call whose connection broke may have been carried out: whoever made it looks again, or repeats what may be repeated.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from headrace.errors import HeadraceError, MalformedRequest, Overloaded, TooLarge, Unavailable
from headrace.link.metrics import LinkMetrics
from headrace.link.party import Party, Peer
from headrace.link.refusals import error_of
from headrace.telemetry.logging import get_logger
from headrace.wire.peer import frames
from headrace.wire.peer.frames import Answer, Call, Hello, Ping, Pong, Refusal, Welcome

CALLS_MAX: Final = 4_096
"""Calls that wait for an answer from one broker; beyond that callers are told to come back."""
CALL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of their bodies together: somebody who does not answer must not fill the memory of who asks."""
CONNECT_S: Final = 2.0
"""For the connection, TLS and the first answer."""
PING_S: Final = 1.0
SILENT_S: Final = 4.0
"""A peer from which nothing comes for so long, although it was asked, is given up: a pause, or a network that is cut."""

log = get_logger(__name__)


class Outgoing(asyncio.Protocol):
    """Made by `link/link.py`, which forgets it when `is_over`."""

    def __init__(self, own: Party, cluster_id: str, name: str, peer: Peer, metrics: LinkMetrics) -> None:
        self.name = name
        self.peer = peer
        self.is_over = False
        self.is_welcome = False
        self.on_welcome: Callable[[], None] = lambda: None
        self._metrics = metrics
        self._hello = Hello(frames.VERSION, cluster_id, own.broker, own.epoch, name, peer.epoch)
        self._reader = frames.frame_reader()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[int, asyncio.Future[bytes]]] = {}
        """Size and answer of each call, by its number."""
        self._unsent: deque[bytes] = deque()
        """Calls made before the peer has said that it is the one that is meant."""
        self._bytes = 0
        self._next = 1
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def connect(self, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: self, self.peer.host, self.peer.port, ssl=tls)
        except (OSError, TimeoutError) as error:
            self.end(f"no connection: {error or 'not in time'}")

    def call(self, kind: str, body: bytes) -> "asyncio.Future[bytes]":
        """The answer; order is the order of calls. Raises `Overloaded` when too much is under way."""
        if len(self._waiting) >= CALLS_MAX or self._bytes + len(body) > CALL_BYTES_MAX:
            raise Overloaded(f"{len(self._waiting)} calls to {self.name} are not answered yet")
        number = self._next
        frame = frames.encode(Call(number, kind, body))
        self._next += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (len(body), answer)
        self._bytes += len(body)
        self._metrics.link_calls_total += 1
        if self.is_welcome:
            self._write(frame)
            self._watch()
        else:
            self._unsent.append(frame)
        return answer

    def end(self, reason: str) -> None:
        """No more calls; those that wait fail."""
        if self.is_over:
            return
        self.is_over = True
        self.is_welcome = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, {}
        if waiting:
            log.warning("calls to a broker fail", broker=self.name, calls=len(waiting), reason=reason)
        self._unsent.clear()
        for _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"broker {self.name} does not answer: {reason}"))
                # Whoever asked may have left.
                answer.exception()

    # -- the protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class.
        if self.is_over:
            self._transport.abort()
            return
        self._write(frames.encode(self._hello))
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self._heard_s = asyncio.get_running_loop().time()
        self._metrics.link_received_bytes_total += len(data)
        self._reader.receive(data)
        try:
            while not self.is_over and (frame := self._reader.next_frame()) is not None:
                self._take(frames.decode(frame.header[0], frame.payload))
        except (MalformedRequest, TooLarge) as error:
            self.end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self.end(str(error or "the connection was closed"))

    def _take(self, message: frames.Message) -> None:
        match message:
            case Welcome():
                self.is_welcome = True
                self.on_welcome()
                while self._unsent:
                    self._write(self._unsent.popleft())
            case Answer(number=number, body=body):
                self._settle(number, body, None)
            case Refusal(number=0):
                self.end(message.message)
            case Refusal(number=number):
                self._settle(number, b"", error_of(message))
            case Pong():
                pass
            case _:
                raise MalformedRequest(f"a {type(message).__name__} from who was called")

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._metrics.link_sent_bytes_total += len(frame)
        self._transport.write(frame)

    def _settle(self, number: int, body: bytes, error: HeadraceError | None) -> None:
        size, answer = self._waiting.pop(number, (0, None))
        self._bytes -= size
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(body)
        else:
            answer.set_exception(error)
            answer.exception()

    # -- is anybody there ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """While somebody waits for an answer, look now and then whether anything comes."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._heard_s = loop.time()
            self._timer = loop.call_later(PING_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.is_over or not (self._waiting or not self.is_welcome):
            return
        loop = asyncio.get_running_loop()
        silent_s = loop.time() - self._heard_s
        if silent_s >= SILENT_S:
            self.end(f"nothing was heard for {silent_s:.1f} s")
            return
        if silent_s >= PING_S and self.is_welcome:
            self._write(frames.encode(Ping()))
        self._timer = loop.call_later(PING_S, self._look)
