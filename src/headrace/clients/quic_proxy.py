"""A local TCP listener that speaks QUIC to the nodes: any Kafka client can use it, and none needs to know.

Every TCP connection becomes a stream of one of a few QUIC connections to its node. What nodes tell about where nodes are is exchanged for local
addresses, one listener for each node, opened when a node is first heard of; all other bytes pass as they are, logins included. So
a client of this proxy comes back to this proxy, for every node of the cluster.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, cast

import structlog

from headrace.clients.connection import CannotConnect, split_address, words_of
from headrace.clients.kafka_addresses import Answers, Place, Requests
from headrace.clients.quic import QuicClient, Trust
from headrace.errors import Unavailable

NODES_MAX: Final = 1_000
"""Listeners, one for each node heard of."""
QUIC_CONNECTIONS: Final = 4
"""To one node, for as many TCP connections. More share them."""
CONNECTIONS_MAX: Final = 90
"""TCP connections that share a QUIC connection: a node allows a hundred streams."""
_UNSENT_HIGH: Final = 256 * 1024

log = structlog.get_logger(__name__)


class QuicProxy:
    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        listen: str = "127.0.0.1:0",
        trust: Trust | None = None,
        connections: int = QUIC_CONNECTIONS,
    ) -> None:
        """`bootstrap` are nodes, asked in turn until one answers; `listen` is where clients bootstrap from."""
        self._connections = connections
        self._bootstrap = [split_address(each) for each in bootstrap]
        self._listen = split_address(listen)
        self._trust = trust or Trust.of_environment()
        self._nodes: dict[Place, QuicClient] = {}
        self._ports: dict[Place, int] = {}
        """Of the local listener for each node."""
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ("", 0)
        """For clients to bootstrap from, once started."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Raises `Unavailable` when the address cannot be listened on, or none of the nodes answers."""
        await self._reach(self._bootstrap)
        host, port = self._listen
        try:
            listening = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {words_of(error)}; --listen names another") from error
        self.address = listening.getsockname()[:2]
        await self._serve(listening, self._bootstrap)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for listening in self._sockets:
            listening.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in self._nodes.values():
            await node.close()

    async def _reach(self, places: Sequence[Place]) -> QuicClient:
        """The first that answers."""
        reasons = []
        for place in places:
            if place not in self._nodes:
                address = f"{place[0]}:{place[1]}"
                self._nodes[place] = QuicClient(address, trust=self._trust, connections_max=self._connections)
            node = self._nodes[place]
            try:
                await node.connect()
            except CannotConnect as error:
                reasons.append(str(error))
            else:
                return node
        raise Unavailable("; ".join(reasons))

    async def _serve(self, listening: socket.socket, places: Sequence[Place]) -> None:
        self._servers.append(
            await asyncio.get_running_loop().create_server(lambda: _Local(self, places), sock=listening)
        )

    def spawn(self, local: "_Local", places: Sequence[Place]) -> None:
        task = asyncio.get_running_loop().create_task(self._join(local, places))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, local: "_Local", places: Sequence[Place]) -> None:
        """Find a node for a client that has come, and a stream on the way there."""
        try:
            node = next((self._nodes[each] for each in places if each in self._nodes and self._nodes[each].node), None)
            node = node or await self._reach(places)
            if node.streams >= CONNECTIONS_MAX * self._connections:
                raise Unavailable(f"{node.streams} connections to that node are open already")
            await node.open_stream(_Remote(local))
        except (Unavailable, CannotConnect) as error:
            log.warning("no way to a node", reason=str(error))
            local.abort()

    def exchange(self, place: Place, host: str) -> Place:
        """Where a client that has reached us at `host` finds us for the node at `place`."""
        if place not in self._ports:
            if len(self._ports) >= NODES_MAX:
                return place
            listening = socket.create_server((self._listen[0], 0), family=_family(self._listen[0]))
            self._ports[place] = listening.getsockname()[1]
            # Whoever connects before it is served waits in its queue.
            task = asyncio.get_running_loop().create_task(self._serve(listening, [place]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return host, self._ports[place]


class _Local(asyncio.Protocol):
    """A Kafka client's TCP connection."""

    def __init__(self, proxy: QuicProxy, places: Sequence[Place]) -> None:
        self._proxy = proxy
        self._places = places
        self._requests = Requests()
        self._host = ""
        self._transport: asyncio.Transport | None = None
        self._remote: asyncio.Transport | None = None
        self.answers = Answers(self._requests.asked, lambda place: proxy.exchange(place, self._host))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_HIGH)
        self._host = str(transport.get_extra_info("sockname")[0])
        raw = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Nothing is read before there is somewhere to send it.
        self._transport.pause_reading()
        self._proxy.spawn(self, self._places)

    def joined(self, remote: asyncio.Transport) -> None:
        self._remote = remote
        if self._transport is None:
            remote.abort()
        else:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._requests.look(data)
        if self._remote is not None:
            self._remote.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._remote is not None:
            self._remote.abort() if exc is not None else self._remote.close()

    def pause_writing(self) -> None:
        if self._remote is not None:
            self._remote.pause_reading()

    def resume_writing(self) -> None:
        if self._remote is not None:
            self._remote.resume_reading()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            for piece in self.answers.pass_on(data):
                self._transport.write(piece)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def finish(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Remote(asyncio.Protocol):
    """The stream to a node."""

    def __init__(self, local: _Local) -> None:
        self._local = local

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=_UNSENT_HIGH)
        self._local.joined(stream)

    def data_received(self, data: bytes) -> None:
        self._local.write(data)

    def pause_writing(self) -> None:
        self._local.pause_reading()

    def resume_writing(self) -> None:
        self._local.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._local.finish()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
