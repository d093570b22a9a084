"""HTTP/3: the reads of the admin door on the QUIC door's port, answered by the admin door's own application.

- GET and HEAD of `/health`, `/ready` and the REST API. Changes, the console and `/metrics` are the admin door's.
- Who asks and what they may see is decided there: a request arrives with its headers and its client's address, as any other.
- A request waits until the handshake is complete: early data may be a replay.
"""

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

import structlog
from qh3.h3.connection import ErrorCode, H3Connection
from qh3.h3.events import DataReceived, HeadersReceived, StopSending, StreamReset
from qh3.quic.connection import QuicConnectionError
from qh3.quic.events import QuicEvent

from headrace.quic.peers import Peer

# Any: the shapes of ASGI.
Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Coroutine[Any, Any, Message]], Callable[[Message], Coroutine[Any, Any, None]]],
    Coroutine[Any, Any, None],
]
Spawn = Callable[[Coroutine[Any, Any, None]], None]

REQUESTS_MAX: Final = 16
"""Of one connection, at once; more are told to come again."""
EARLY_EVENTS_MAX: Final = 256
_UNSENT_HIGH: Final = 1024 * 1024
_LOOK_S: Final = 0.01
_SLOW_S: Final = 30.0
"""How long a client may leave an answer unread."""
_PATHS: Final = ("/health", "/ready", "/api/v1")
_METHODS: Final = ("GET", "HEAD")

log = structlog.get_logger(__name__)


class Http3:
    """One connection."""

    def __init__(self, peer: Peer, application: Application, spawn: Spawn) -> None:
        self._peer = peer
        self._h3 = H3Connection(peer.quic)
        self._application = application
        self._spawn = spawn
        self._requests: dict[int, asyncio.Task[None] | None] = {}
        self._early: list[QuicEvent] | None = []
        self.requests_total = 0

    def receive(self, event: QuicEvent) -> None:
        if self._early is not None:
            self._early.append(event)
            if len(self._early) > EARLY_EVENTS_MAX:
                self._peer.close("too much before the handshake", ErrorCode.H3_EXCESSIVE_LOAD)
            return
        for each in self._h3.handle_event(event):
            match each:
                case HeadersReceived():
                    self._begin(each)
                case DataReceived():
                    pass  # Reads have no body; what is sent as one is not kept.
                case StreamReset() | StopSending():
                    task = self._requests.pop(each.stream_id, None)
                    if task is not None:
                        task.cancel()
        self._peer.transmit_soon()

    def connected(self) -> None:
        early, self._early = self._early or [], None
        for event in early:
            self.receive(event)

    def ended(self) -> None:
        for task in list(self._requests.values()):
            if task is not None:
                task.cancel()
        self._requests.clear()

    def _begin(self, headers: HeadersReceived) -> None:
        number = headers.stream_id
        if number in self._requests:
            return  # Trailers.
        if len(self._requests) >= REQUESTS_MAX:
            self._peer.quic.reset_stream(number, ErrorCode.H3_REQUEST_REJECTED)
            return
        self.requests_total += 1
        self._requests[number] = None
        self._spawn(self._respond(number, headers))

    async def _respond(self, number: int, headers: HeadersReceived) -> None:
        self._requests[number] = asyncio.current_task()
        answer = _Answer(self._h3, self._peer, number)
        try:
            scope = _scope(headers, self._peer)
            refusal = _refusal(scope)
            if refusal is not None:
                await answer.plain(*refusal)
            else:
                await self._application(scope, _no_body, answer.send)
        except (ConnectionResetError, QuicConnectionError):
            pass  # Nobody waits for it any more.
        except Exception:
            log.exception("request failed", door="quic", peer=self._peer.host)
            answer.give_up()
        finally:
            self._requests.pop(number, None)


class _Answer:
    def __init__(self, h3: H3Connection, peer: Peer, number: int) -> None:
        self._h3 = h3
        self._peer = peer
        self._number = number

    async def plain(self, status: int, words: str) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(words)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": words.encode()})

    async def send(self, message: Message) -> None:
        if self._peer.is_over:
            raise ConnectionResetError("the connection is over")
        if message["type"] == "http.response.start":
            status = (b":status", str(message["status"]).encode())
            self._h3.send_headers(self._number, [status, *_lower(message.get("headers", ()))])
        elif message["type"] == "http.response.body":
            body, is_last = message.get("body", b""), not message.get("more_body", False)
            self._h3.send_data(self._number, body, end_stream=is_last)
            self._peer.transmit_soon()
            await self._until_sent()

    async def _until_sent(self) -> None:
        """Whoever reads slowly is waited for, a while: QUIC copies what it is given."""
        for _ in range(int(_SLOW_S / _LOOK_S)):
            if self._peer.is_over or self._peer.quic.get_send_buffer_size(self._number) <= _UNSENT_HIGH:
                return
            await asyncio.sleep(_LOOK_S)
        self.give_up()
        raise ConnectionResetError("the client does not read its answer")

    def give_up(self) -> None:
        if not self._peer.is_over:
            try:
                self._peer.quic.reset_stream(self._number, ErrorCode.H3_INTERNAL_ERROR)
            except QuicConnectionError:
                return
            self._peer.transmit_soon()


def _lower(headers: Any) -> list[tuple[bytes, bytes]]:  # Any: pairs of bytes, in whatever an application puts them
    return [(bytes(name).lower(), bytes(value)) for name, value in headers]


def _scope(request: HeadersReceived, peer: Peer) -> Message:
    special = {name: value for name, value in request.headers if name.startswith(b":")}
    headers = [(name, value) for name, value in request.headers if not name.startswith(b":") and name != b"host"]
    raw_path, _, query = special.get(b":path", b"/").partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "3",
        "method": special.get(b":method", b"").decode("latin-1").upper(),
        "scheme": "https",
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", special.get(b":authority", b"")), *headers],
        "client": peer.address,
        "server": peer.reached,
    }


def _refusal(scope: Message) -> tuple[int, str] | None:
    if scope["method"] not in _METHODS:
        return 405, "HTTP/3 serves reads; changes are made at the admin door\n"
    path = scope["path"]
    if not any(path == each or path.startswith(f"{each}/") for each in _PATHS):
        return 404, "HTTP/3 serves /health, /ready and /api/v1; the rest is at the admin door\n"
    return None


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
