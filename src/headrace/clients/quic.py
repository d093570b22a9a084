"""Kafka's protocol over QUIC: one connection to a node, and as many streams on it as a client would have TCP connections.

    async with QuicClient("node:9092", trust=Trust(ca_file="ca.pem")) as client:
        stream = await client.open_stream(protocol)

`protocol` is an asyncio protocol, as for `loop.create_connection`. The connection is made when it is needed and made again after a loss, from
then on without a round trip of waiting where the node remembers us (0-RTT). When nothing is heard it goes on from another port, for the
network may have changed under it (connection migration).
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import msgspec
from qh3.quic.configuration import QuicConfiguration

from headrace.clients.connection import CannotConnect, split_address
from headrace.errors import Invalid
from headrace.quic.certificates import fingerprint
from headrace.quic.peers import KAFKA_ALPN, Peer, Quic, Ticket, configured
from headrace.quic.sockets import Address, DatagramSocket
from headrace.quic.streams import Protocol, StreamTransport

FINGERPRINT_VARIABLE: Final = "HEADRACE_QUIC_FINGERPRINT"
IDLE_SECONDS: Final = 10.0
"""A node from which nothing comes for so long is gone."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Answers that nobody takes, of all streams. A client asks for what it gets: one fetch of each stream fits."""
MIGRATIONS_MAX: Final = 3
"""Of one connection: qh3 forgets no address that a client has had, and knows four. Then a new connection goes on."""
_PING_SECONDS: Final = 2.0
_SILENT_PINGS_MAX: Final = 2
"""Unanswered before we try from another port."""
_CONNECT_SECONDS: Final = 10.0
_TICKETS_MAX: Final = 8


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """How a node proves that it is the one that is meant. With neither, only a node on this machine is believed."""

    ca_file: str | None = None
    """Authorities, in PEM."""
    fingerprint: str | None = None
    """SHA-256 of the certificate itself, as `headrace up` prints it."""
    is_system: bool = False
    """Whether the authorities of this machine count."""
    is_blind: bool = False
    """Whether whoever answers is believed, to look at its certificate."""

    @classmethod
    def of_environment(cls) -> "Trust":
        return cls(fingerprint=os.environ.get(FINGERPRINT_VARIABLE))

    def apply(self, configuration: QuicConfiguration, host: str) -> None:
        configuration.server_name = host
        if self.is_blind:
            configuration.verify_mode = ssl.CERT_NONE
            return
        if self.ca_file is not None:
            configuration.load_verify_locations(cafile=self.ca_file)
        if self.fingerprint is not None:
            configuration.assert_fingerprint = _digits(self.fingerprint)
            if self.ca_file is None:
                configuration.verify_mode = ssl.CERT_NONE
        elif self.ca_file is None and not self.is_system and _is_this_machine(host):
            # As over TCP: whoever listens there was let in by this machine.
            configuration.verify_mode = ssl.CERT_NONE


def _digits(fingerprint: str) -> str:
    digits = fingerprint.replace(":", "").lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise Invalid(
            f"fingerprint {fingerprint[:100]!r}: expected the 64 hexadecimal digits of a SHA-256; "
            "`headrace quic-proxy fingerprint` shows a node's"
        )
    return digits


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Node(Peer):
    """The node at the other end of one connection."""

    def __init__(self, quic: Quic, address: Address) -> None:
        super().__init__(quic, _socket_to(address, self), address, held_bytes_max=HELD_BYTES_MAX)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_resumed = False
        self.is_early_accepted = False
        self.is_remembered = False
        """Whether it may be asked before the handshake is complete."""
        self.was_heard = False
        self._pings = 0
        self._pinging: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._quic.connect(self.address, self._loop.time())
        self.transmit()
        self._pinging = self._loop.call_later(_PING_SECONDS, self._ping)

    def received(self, datagrams: list[bytes], address: Address) -> None:
        self.was_heard = True
        self._pings = 0
        self.receive(datagrams, address)

    def refused(self) -> None:
        """Nobody listens at that port: no use in waiting."""
        self._end("nobody listens there")

    def connected(self, *, is_resumed: bool, is_early_accepted: bool) -> None:
        self.is_resumed, self.is_early_accepted = is_resumed, is_early_accepted
        if not self.ready.done():
            self.ready.set_result(None)

    def stream_opened(self, stream: StreamTransport) -> None:
        stream.abort()  # Nodes begin none.

    def migrate(self) -> None:
        """Go on from another port, and under another connection id: nobody on the way need know that it is us."""
        if self.migrations_total >= MIGRATIONS_MAX:
            self.close("moved too often")
            return
        former, self._udp = self._udp, _socket_to(self.address, self)
        former.close()
        if self.is_connected:
            with contextlib.suppress(ValueError):  # The node has not given us another one yet.
                self._quic.change_connection_id()
        self.migrations_total += 1
        self.transmit_soon()

    def _ping(self) -> None:
        if self.is_over:
            return
        self._pinging = self._loop.call_later(_PING_SECONDS, self._ping)
        if self.is_connected:
            if self._pings >= _SILENT_PINGS_MAX:
                self._pings = 0
                self.migrate()
            self._pings += 1
            self._quic.send_ping(self._pings)
            self.transmit_soon()

    def ended(self, reason: str) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        self._udp.close()
        if not self.ready.done():
            self.ready.set_exception(CannotConnect(reason or "the handshake failed"))
            self.ready.exception()  # Somebody may have stopped waiting.

    def show_fingerprint(self) -> str:
        certificate = self._quic.get_peercert()
        return "" if certificate is None else fingerprint(certificate.public_bytes())


class QuicClient:
    """The way to one node: one connection, or as many as there are streams up to `connections_max`.

    A loss slows down its whole connection, all streams of it. Who has several connections, as over TCP, is slowed down one at a time.
    """

    def __init__(
        self,
        address: str,
        *,
        trust: Trust | None = None,
        alpn: Sequence[str] = (KAFKA_ALPN,),
        connections_max: int = 1,
    ) -> None:
        self._host, self._port = split_address(address)
        self._trust = trust or Trust.of_environment()
        self._alpn = alpn
        self._connections_max = connections_max
        self._nodes: list[Node] = []
        self._tickets: deque[Ticket] = deque(maxlen=_TICKETS_MAX)
        self.connections_total = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def nodes(self) -> list[Node]:
        """The node at the other end of each connection that there is now."""
        self._nodes = [each for each in self._nodes if not each.is_over]
        return self._nodes

    @property
    def node(self) -> Node | None:
        return next(iter(self.nodes), None)

    @property
    def streams(self) -> int:
        return sum(len(each.streams) for each in self.nodes)

    async def connect(self) -> Node:
        """Returns when a handshake is complete. Raises `CannotConnect`."""
        return await self._completed(self.node or self._begin())

    async def open_stream(self, protocol: Protocol) -> StreamTransport:
        node = self._least_busy() or self._begin()
        if not node.is_connected and not node.is_remembered:
            await self._completed(node)
        # A node that remembers us is asked at once; what it must not answer yet waits there.
        return node.open_stream(protocol)

    def _least_busy(self) -> Node | None:
        """None when a new connection is better."""
        nodes = self.nodes
        if not nodes:
            return None
        least = min(nodes, key=lambda each: len(each.streams))
        return None if least.streams and len(nodes) < self._connections_max else least

    async def _completed(self, node: Node) -> Node:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.shield(node.ready)
        except (TimeoutError, CannotConnect) as error:
            node.close()
            reason = str(error) or "no answer"
            found = "no connection with the node" if node.was_heard else "no node"
            raise CannotConnect(f"{found} at {self._host}:{self._port} (UDP): {reason}") from error
        return node

    def _begin(self) -> Node:
        """A new connection, whose handshake is not complete."""
        configuration = configured(is_client=True, alpn=self._alpn, idle_timeout_s=IDLE_SECONDS)
        self._trust.apply(configuration, self._host)
        # A ticket counts once.
        configuration.session_ticket = self._tickets.pop() if self._tickets else None
        made = Node(Quic(configuration=configuration, session_ticket_handler=self._tickets.append), self._resolved())
        made.is_remembered = configuration.session_ticket is not None
        self._nodes.append(made)
        self.connections_total += 1
        made.begin()
        return made

    def _resolved(self) -> Address:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise CannotConnect(f"no address for {self._host}: {error.strerror}") from error
        # A node listens on one of them, and more often on IPv4.
        found.sort(key=lambda each: each[0] != socket.AF_INET)
        host, port = found[0][4][:2]
        return str(host), int(port)

    async def close(self) -> None:
        for node in self.nodes:
            node.close()


def _socket_to(address: Address, node: Node) -> DatagramSocket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.connect(address)
    except OSError as error:
        made.close()
        raise CannotConnect(f"{address[0]}:{address[1]}: {error.strerror}") from error
    return DatagramSocket(made, node.received, node.refused)
