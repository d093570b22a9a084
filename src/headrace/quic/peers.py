"""One QUIC connection: datagrams in, streams out, and back. qh3 does the protocol; this drives it.

- Streams do not wait for each other. Each is sent a little in turn, and one whose reader is slow keeps only what is its own.
- What readers have not taken is bounded for the connection: beyond `HELD_BYTES_MAX` nothing more is accepted (`is_choked`), and the
  sender comes to the end of its flow-control windows. qh3 gives new credit for whatever is taken out of it, of any stream; so a
  stream that holds all of that for `CHOKED_SECONDS_MAX` is given up, for the sake of the others.
- One turn of the loop sends `TURN_BYTES`: whoever has more waits for the next, and others' requests come between.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from qh3.quic import events
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection, QuicConnectionError
from qh3.quic.packet import QuicErrorCode
from qh3.tls import SessionTicket

from headrace.quic.sockets import Address, DatagramSocket
from headrace.quic.streams import GIVEN_UP, NO_ERROR, StreamTransport

KAFKA_ALPN: Final = "headrace-kafka"
"""Kafka's frames on bidirectional streams, each of them what a TCP connection is to the Kafka door."""
HTTP_ALPN: Final = "h3"
DATAGRAM_SIZE: Final = 1350
"""Fits into an Ethernet frame with room for a tunnel's headers."""
WINDOW_BYTES: Final = 4 * 1024 * 1024
"""What the other side may send of one stream before any of it is read: 40 MiB/s at a round trip of 100 ms."""
CONNECTION_WINDOW_BYTES: Final = 2 * WINDOW_BYTES
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
CHOKED_SECONDS_MAX: Final = 10.0
TURN_BYTES: Final = 64 * 1024
_BACKLOG_BYTES: Final = 128 * 1024
"""Of one stream, handed to QUIC and not sent for the first time yet."""
_DATAGRAMS_PER_TURN: Final = 64
_NO_ROOM: Final = "packet builder capacity exhausted"

log = structlog.get_logger(__name__)


def configured(
    *, is_client: bool, alpn: Sequence[str], idle_timeout_s: float, window_bytes: int = WINDOW_BYTES
) -> QuicConfiguration:
    # qh3 warns of every connection that is closed by the other side, as if that were news.
    logging.getLogger("quic").setLevel(logging.CRITICAL)
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=list(alpn),
        idle_timeout=idle_timeout_s,
        max_data=2 * window_bytes,
        max_stream_data=window_bytes,
        max_datagram_size=DATAGRAM_SIZE,
        # qh3 tells HTTP/3 clients that it knows datagrams, and they insist that it takes some. Nobody reads them.
        max_datagram_frame_size=DATAGRAM_SIZE,
    )


class Quic(QuicConnection):
    """qh3's connection, which can be told to take nothing more for a while: then its sender gets no new credit."""

    is_choked = False

    def _drain_core(self) -> None:
        if not self.is_choked:
            super()._drain_core()

    def unchoke(self) -> None:
        self.is_choked = False
        super()._drain_core()

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """As much as one turn may send.

        qh3 raises when the rest of what an unproven address may be sent is too small for a packet, and loses what it has built before;
        so those are gathered here.
        """
        found: list[tuple[bytes, Address]] = []
        core = self._core
        while core is not None and len(found) < _DATAGRAMS_PER_TURN:
            try:
                built = core.poll_transmit(now)
            except RuntimeError as error:
                if _NO_ROOM in str(error):
                    break
                raise QuicConnectionError(QuicErrorCode.INTERNAL_ERROR, None, str(error)) from error
            if built is None:
                break
            found.append((built[0], built[1]))
        return found

    @property
    def is_over(self) -> bool:
        return self._core is not None and self._core.state in ("terminated", "draining")

    @property
    def end(self) -> str | None:
        """Why the connection is over, once either side has said so; nothing more comes of it."""
        return None if self._close_event is None else self._close_event.reason_phrase or "closed"

    def let_go(self) -> None:
        """It is over. Its parts know each other in circles, and the collector hardly ever looks for those."""
        if self._tls is not None:
            vars(self._tls.tls).clear()
            vars(self._tls).clear()
        self._tls = self._core = None
        self._session_ticket_fetcher = self._session_ticket_handler = None


class Peer:
    """Whoever is at the other end. The door and the client subclass it with what to do with streams."""

    def __init__(
        self, quic: Quic, udp: DatagramSocket, address: Address, *, held_bytes_max: int = HELD_BYTES_MAX
    ) -> None:
        self._quic = quic
        self._held_bytes_max = held_bytes_max
        self._udp = udp
        self._loop = asyncio.get_running_loop()
        self.address = address
        """Where it was when it came, as access rules name it."""
        self.reached = udp.address
        """Where it has reached us."""
        self._last_address = address
        self.streams: dict[int, StreamTransport] = {}
        self._deaf: set[int] = set()
        """Streams that we have ended, and the other side not yet: what still comes of them is nobody's."""
        self._sending: dict[StreamTransport, None] = {}
        self._is_transmitting = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._choked: asyncio.TimerHandle | None = None
        self.held_bytes = 0
        self.is_connected = False
        self.is_over = False
        self.migrations_total = 0

    # -- for the door and the client ------------------------------------------------------------------------------

    def negotiated(self, alpn: str | None) -> None:
        """Which protocol is spoken is known; nothing has come yet."""

    def connected(self, *, is_resumed: bool, is_early_accepted: bool) -> None:
        """The handshake is complete: the other side is there, and nothing of what comes now is a repetition."""

    def stream_opened(self, stream: StreamTransport) -> None:
        """The other side has begun a stream; whoever takes it gives it a protocol."""

    def stream_event(self, event: events.QuicEvent) -> None:
        """Data, resets and the like of streams; transports get them unless somebody else wants them."""
        match event:
            case events.StreamDataReceived():
                self._data(event)
            case events.StreamReset():
                self._deaf.discard(event.stream_id)
                if (found := self.streams.get(event.stream_id)) is not None:
                    self._unsend(found)
                    found.lost(ConnectionResetError("the stream was reset"))
            case events.StopSendingReceived():
                if (found := self.streams.get(event.stream_id)) is not None:
                    self.stop_receiving(found)
                    found.lost(ConnectionResetError("the other side reads no more"))

    def stream_data(self, stream: StreamTransport, data: bytes, *, is_end: bool) -> None:
        stream.receive(data, is_end=is_end)

    def issued(self, connection_id: bytes) -> None:
        """Datagrams may come for this id from now on."""

    def retired(self, connection_id: bytes) -> None: ...

    def ended(self, reason: str) -> None:
        """The connection is over, and so are its streams."""

    @property
    def quic(self) -> Quic:
        return self._quic

    @property
    def host(self) -> str:
        return self.address[0]

    # -- receiving ------------------------------------------------------------------------------------------------

    def receive(self, datagrams: list[bytes], address: Address) -> None:
        if self.is_over:
            return
        if address != self._last_address:
            self._last_address = address
            self.migrations_total += 1
        try:
            self._quic.receive_many_datagrams(datagrams, address, self._loop.time())
        except QuicConnectionError as error:
            self._fail(str(error))
            return
        self._take_events()
        if (end := self._quic.end) is not None:
            # qh3 would keep it for a while, to answer what is still on its way.
            with contextlib.suppress(QuicConnectionError):
                self._send()
            self._end(end)
        self.transmit_soon()

    def _take_events(self) -> None:
        while (event := self._quic.next_event()) is not None:
            match event:
                case events.StreamDataReceived() | events.StreamReset() | events.StopSendingReceived():
                    self.stream_event(event)
                case events.ProtocolNegotiated():
                    self.negotiated(event.alpn_protocol)
                case events.HandshakeCompleted():
                    self.is_connected = True
                    self.connected(is_resumed=event.session_resumed, is_early_accepted=event.early_data_accepted)
                case events.ConnectionIdIssued():
                    self.issued(event.connection_id)
                case events.ConnectionIdRetired():
                    self.retired(event.connection_id)
                case events.ConnectionTerminated():
                    self._end(event.reason_phrase or f"error {event.error_code}")
                    return

    def _data(self, event: events.StreamDataReceived) -> None:
        number = event.stream_id
        found = self.streams.get(number)
        if found is None:
            if number in self._deaf:
                if event.end_stream:
                    self._deaf.discard(number)
                return
            found = self.streams[number] = StreamTransport(self, number)
            self.stream_opened(found)
        self.stream_data(found, event.data, is_end=event.end_stream)

    def look_at_held(self) -> None:
        """Take no more while much is held; take again when half of that is gone."""
        if self.is_over:
            return
        if not self._quic.is_choked:
            if self.held_bytes > self._held_bytes_max and self.is_connected:
                self._quic.is_choked = True
                self._choked = self._loop.call_later(CHOKED_SECONDS_MAX, self._give_up_slowest)
        elif self.held_bytes <= self._held_bytes_max // 2:
            self._loop.call_soon(self._unchoke)

    def _unchoke(self) -> None:
        if self.is_over or not self._quic.is_choked or self.held_bytes > self._held_bytes_max // 2:
            return
        if self._choked is not None:
            self._choked.cancel()
            self._choked = None
        self._quic.unchoke()
        self._take_events()
        self.transmit_soon()

    def _give_up_slowest(self) -> None:
        self._choked = None
        if self.is_over or not self.streams:
            return
        slowest = max(self.streams.values(), key=lambda each: each.held_bytes)
        log.warning("stream given up: nobody takes what it brings", peer=self.host, held_bytes=slowest.held_bytes)
        slowest.abort()
        self._unchoke()
        if self._quic.is_choked:
            self._choked = self._loop.call_later(CHOKED_SECONDS_MAX, self._give_up_slowest)

    # -- sending --------------------------------------------------------------------------------------------------

    def wants_to_send(self, stream: StreamTransport) -> None:
        self._sending[stream] = None
        self.transmit_soon()

    def transmit_soon(self) -> None:
        if not self._is_transmitting and not self.is_over:
            self._is_transmitting = True
            self._loop.call_soon(self.transmit)

    def transmit(self) -> None:
        self._is_transmitting = False
        if self.is_over:
            return
        try:
            self._hand_over()
            self._send()
        except QuicConnectionError as error:
            self._fail(str(error))
            return
        if self._sending and not self._quic.get_send_buffer_size():
            # QUIC has sent all it was given, and would send more.
            self.transmit_soon()

    def _hand_over(self) -> None:
        """Give QUIC something of each stream, in turn."""
        left = TURN_BYTES
        for stream in list(self._sending):
            if left <= 0:
                return
            del self._sending[stream]
            room = _BACKLOG_BYTES - (self._quic.get_send_buffer_size(stream.number) if stream.has_unsent else 0)
            taken = self._hand_over_stream(stream, min(room, left, TURN_BYTES // 2)) if room > 0 else 0
            left -= taken
            if stream.has_unsent:
                self._sending[stream] = None  # Behind the others.

    def _hand_over_stream(self, stream: StreamTransport, size_max: int) -> int:
        taken = 0
        try:
            while taken < size_max and (piece := stream.take(size_max - taken)) is not None:
                self._quic.send_stream_data(stream.number, piece)
                taken += len(piece)
            if stream.wants_end:
                self._quic.send_stream_data(stream.number, b"", end_stream=True)
                stream.end_sent()
        except QuicConnectionError as error:
            stream.lost(ConnectionResetError(str(error)))
            return taken
        stream.sent()
        return taken

    def _send(self) -> None:
        run: list[bytes] = []
        to: Address | None = None
        found = self._quic.datagrams_to_send(self._loop.time())
        if len(found) >= _DATAGRAMS_PER_TURN:
            self.transmit_soon()
        for datagram, address in found:
            if to is not None and address != to:
                self._udp.send(run, to)
                run = []
            to = address
            run.append(datagram)
        if to is not None:
            self._udp.send(run, to)
        self._arm()

    def _arm(self) -> None:
        at = self._quic.get_timer()
        if at != self._timer_at or self._timer is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if at is None else self._loop.call_at(at, self._tick)
            self._timer_at = at

    def _tick(self) -> None:
        self._timer = None
        if self.is_over:
            return
        now = self._loop.time() if self._timer_at is None else max(self._loop.time(), self._timer_at)
        try:
            self._quic.handle_timer(now)
        except QuicConnectionError as error:
            self._fail(str(error))
            return
        if self._quic.is_choked:
            self._look_for_end()
        self._take_events()
        if not self.is_over:
            self.transmit()

    def _look_for_end(self) -> None:
        """A connection that is choked hears nothing, not even that it is over."""
        if self._quic.is_over:
            self._quic.unchoke()

    # -- streams --------------------------------------------------------------------------------------------------

    def open_stream(self, protocol: asyncio.Protocol | asyncio.BufferedProtocol) -> StreamTransport:
        number = self._quic.get_next_available_stream_id()
        # Now, so that the next one gets the next number.
        self._quic.send_stream_data(number, b"")
        stream = self.streams[number] = StreamTransport(self, number)
        stream.set_protocol(protocol)
        protocol.connection_made(stream)
        return stream

    def stop_receiving(self, stream: StreamTransport) -> None:
        if not stream.is_end_received and not self.is_over:
            self._deaf.add(stream.number)
            self._try(self._quic.stop_stream, stream.number, NO_ERROR)

    def reset(self, stream: StreamTransport) -> None:
        if self.is_over:
            return
        self.stop_receiving(stream)
        self._unsend(stream)

    def _unsend(self, stream: StreamTransport) -> None:
        self._try(self._quic.reset_stream, stream.number, GIVEN_UP)
        self.transmit_soon()

    @staticmethod
    def _try(call: Callable[[int, int], None], number: int, code: int) -> None:
        with contextlib.suppress(QuicConnectionError, ValueError):  # That direction of the stream is over already.
            call(number, code)

    def forget(self, stream: StreamTransport) -> None:
        self.streams.pop(stream.number, None)
        self._sending.pop(stream, None)
        self.look_at_held()

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self, reason: str = "", code: int = NO_ERROR) -> None:
        """Say goodbye, and be over."""
        if self.is_over:
            return
        self._quic.close(error_code=code, reason_phrase=reason)
        with contextlib.suppress(QuicConnectionError):
            self._send()
        self._end(reason)

    def _fail(self, reason: str) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.is_over:
            return
        self.is_over = True
        for timer in (self._timer, self._choked):
            if timer is not None:
                timer.cancel()
        self._timer = self._choked = None
        for stream in list(self.streams.values()):
            stream.lost(ConnectionResetError(reason or "the connection is over"))
        self._sending.clear()
        self.ended(reason)
        self._loop.call_soon(self._quic.let_go)


Ticket = SessionTicket
