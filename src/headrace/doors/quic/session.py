"""One client of the QUIC door: which protocol it speaks, and what it may ask before its handshake is complete."""

from collections.abc import Callable
from typing import Final

import structlog
from qh3.quic.events import QuicEvent

from headrace.doors.connection import FramedConnection
from headrace.doors.listening import Listener
from headrace.doors.quic.early import EarlyFrames
from headrace.doors.quic.endpoint import Endpoint
from headrace.doors.quic.http3 import Application, Http3, Spawn
from headrace.quic.peers import HTTP_ALPN, Peer, Quic
from headrace.quic.sockets import Address, DatagramSocket
from headrace.quic.streams import StreamTransport

NewConnection = Callable[[Listener], FramedConnection]
"""Of the door whose frames come on streams."""
_BIDIRECTIONAL_OF_CLIENT = 0
_KIND = 0x3
UNFINISHED_MAX: Final = 256 * 1024 * 1024
"""Bytes of requests that are not whole yet, of all streams of one address. A request may have a hundred megabytes."""
_STEP: Final = 1024 * 1024
"""Of one stream, between two looks at all of them."""

log = structlog.get_logger(__name__)


class Client(Peer):
    def __init__(
        self,
        quic: Quic,
        udp: DatagramSocket,
        address: Address,
        *,
        endpoint: Endpoint,
        listener: Listener,
        new_connection: NewConnection,
        application: Application | None,
        spawn: Spawn,
    ) -> None:
        super().__init__(quic, udp, address)
        self._endpoint = endpoint
        self._listener = listener
        self._new_connection = new_connection
        self._application = application
        self._spawn = spawn
        self._http: Http3 | None = None
        self._early: dict[StreamTransport, EarlyFrames] = {}
        self._ended_early: set[StreamTransport] = set()
        self.is_early = False
        """Whether something of it was taken before its handshake was complete."""

    def negotiated(self, alpn: str | None) -> None:
        if alpn == HTTP_ALPN and self._application is not None:
            self._http = Http3(self, self._application, self._spawn)

    def stream_event(self, event: QuicEvent) -> None:
        if self._http is None:
            super().stream_event(event)
        else:
            self._http.receive(event)

    def stream_opened(self, stream: StreamTransport) -> None:
        if stream.number & _KIND != _BIDIRECTIONAL_OF_CLIENT:
            stream.abort()
            return
        if not self.is_connected:
            self._early[stream] = EarlyFrames(has_login=bool(self._listener.settings.sasl))
        connection = self._new_connection(self._listener)
        stream.set_protocol(connection)
        connection.connection_made(stream)

    def stream_data(self, stream: StreamTransport, data: bytes, *, is_end: bool) -> None:
        early = self._early.get(stream)
        if early is None:
            stream.receive(data, is_end=is_end)
            self._look_at_unfinished(stream, len(data))
            return
        passing = early.receive(data)
        if is_end:
            self._ended_early.add(stream)
        if passing:
            self.is_early = True
            stream.receive(passing, is_end=False)

    def _look_at_unfinished(self, stream: StreamTransport, size: int) -> None:
        """A stream that would make too much of what its address has not finished is given up."""
        unfinished = _unfinished(stream)
        if unfinished // _STEP == (unfinished - size) // _STEP:
            return
        if (
            self._endpoint.of_host(self.host, lambda peer: sum(map(_unfinished, peer.streams.values())))
            > UNFINISHED_MAX
        ):
            log.warning("stream given up: too many unfinished requests of one address", peer=self.host)
            stream.abort()

    def connected(self, *, is_resumed: bool, is_early_accepted: bool) -> None:
        self._endpoint.connected(self)
        if self.is_early:
            self._endpoint.early_total += 1
        early, self._early = self._early, {}
        for stream, frames in early.items():
            stream.receive(frames.rest(), is_end=stream in self._ended_early)
        self._ended_early.clear()
        if self._http is not None:
            self._http.connected()

    def issued(self, connection_id: bytes) -> None:
        self._endpoint.issued(self, connection_id)

    def retired(self, connection_id: bytes) -> None:
        self._endpoint.retired(self, connection_id)

    def ended(self, reason: str) -> None:
        self._early.clear()
        if self._http is not None:
            self._http.ended()
            self._http = None
        self._endpoint.ended(self)


def _unfinished(stream: StreamTransport) -> int:
    protocol = stream.protocol
    return stream.held_bytes + (protocol.unfinished_bytes if isinstance(protocol, FramedConnection) else 0)
