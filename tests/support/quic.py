"""QUIC clients for tests: ours, and aioquic's, which we did not write."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent
from aioquic.tls import SessionTicket

from headrace.clients.connection import split_address
from headrace.quic.peers import KAFKA_ALPN
from headrace.quic.streams import StreamTransport
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest

Response = TypeVar("Response", bound=Message)
PATIENCE_S = 30.0
HELLO = ApiVersionsRequest("tests", "1")
HELLO_VERSION = 3


class Frames(asyncio.Protocol):
    """The client's end of a stream: frames in the order of their coming."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.stream: StreamTransport | None = None
        self._data = bytearray()
        self._numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.stream = cast(StreamTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + int.from_bytes(self._data[:4], "big")):
            self.received.put_nowait(bytes(self._data[4:end]))
            del self._data[:end]

    def connection_lost(self, exc: Exception | None) -> None:
        self.received.put_nowait(None)

    def send(self, request: Message, version: int) -> int:
        assert self.stream is not None
        number = next(self._numbers)
        self.stream.write(encode_request(request, version, number, "tests"))
        return number

    async def frame(self) -> bytes:
        frame = await asyncio.wait_for(self.received.get(), PATIENCE_S)
        assert frame is not None, "the stream ended"
        return frame

    async def answer(self, version: int, response: type[Response]) -> Response:
        return decoded(await self.frame(), version, response)

    async def call(self, request: Message, version: int, response: type[Response]) -> Response:
        self.send(request, version)
        return await self.answer(version, response)

    async def hello(self) -> None:
        self.send(HELLO, HELLO_VERSION)
        assert await self.frame()


def decoded(frame: bytes, version: int, response: type[Response]) -> Response:
    view = memoryview(frame)
    _, at = read_response_header(view, response.API_KEY, version)
    return response.decode(view, version, at)


def foreign_configuration(alpn: str, **more: Any) -> QuicConfiguration:  # Any: aioquic's own settings
    return QuicConfiguration(is_client=True, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, **more)


@asynccontextmanager
async def foreign_connection(
    address: str,
    *,
    ticket: SessionTicket | None = None,
    tickets: list[SessionTicket] | None = None,
    is_patient: bool = True,
) -> AsyncIterator[QuicConnectionProtocol]:
    """aioquic's; not `is_patient`, it sends before the handshake is complete."""
    host, port = split_address(address)
    async with connect(
        host,
        port,
        configuration=foreign_configuration(KAFKA_ALPN, session_ticket=ticket),
        session_ticket_handler=(tickets if tickets is not None else []).append,
        wait_connected=is_patient,
    ) as protocol:
        yield protocol


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


class ForeignHttp(QuicConnectionProtocol):
    """A small HTTP/3 client on aioquic."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: aioquic's own
        super().__init__(*args, **kwargs)
        self._http: H3Connection | None = None
        self._answers: dict[int, tuple[list[tuple[bytes, bytes]], bytearray, asyncio.Future[None]]] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic)
        if self._http is not None:
            for each in self._http.handle_event(event):
                self._http_event(each)

    def _http_event(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived | DataReceived) and event.stream_id in self._answers:
            headers, body, done = self._answers[event.stream_id]
            if isinstance(event, HeadersReceived):
                headers += event.headers
            else:
                body += event.data
            if event.stream_ended and not done.done():
                done.set_result(None)

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        authority: str = "localhost",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        assert self._http is not None
        number = self._quic.get_next_available_stream_id()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers[number] = ([], bytearray(), done)
        pairs = {":method": method, ":scheme": "https", ":authority": authority, ":path": path, **(headers or {})}
        wire = [(name.encode(), value.encode()) for name, value in pairs.items()]
        self._http.send_headers(number, wire, end_stream=not body)
        if body:
            self._http.send_data(number, body, end_stream=True)
        self.transmit()
        await asyncio.wait_for(done, PATIENCE_S)
        found, text, _ = self._answers.pop(number)
        return int(dict(found)[b":status"]), bytes(text)


@asynccontextmanager
async def foreign_http(address: str) -> AsyncIterator[ForeignHttp]:
    host, port = split_address(address)
    async with connect(host, port, configuration=foreign_configuration("h3"), create_protocol=ForeignHttp) as protocol:
        yield cast(ForeignHttp, protocol)
