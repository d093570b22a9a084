"""All connections of this broker to others, and of others to it.

A connection is made when the first call needs it. After a failure the next attempt waits, longer each time and never as long as
anybody else's; calls in between fail at once. A peer that has another epoch by now is another peer.
"""

import asyncio
import ssl
from typing import Final

from headrace.chance import Chance
from headrace.errors import Overloaded, Unavailable
from headrace.link.incoming import HELLO_S, Incoming, check_hello
from headrace.link.metrics import LinkMetrics
from headrace.link.outgoing import Outgoing
from headrace.link.party import Directory, Party, Serve
from headrace.telemetry.logging import get_logger
from headrace.wire.peer.frames import Hello

CONNECTIONS_MAX: Final = 1_024
"""From other brokers, and from whoever else may knock."""
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0

log = get_logger(__name__)


class _Pause:
    """After failures to reach a broker."""

    __slots__ = ("longest_s", "until_s")

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.until_s = 0.0

    def grow(self, now_s: float, chance: Chance) -> None:
        self.longest_s = min(max(self.longest_s * 2, PAUSE_S_MIN), PAUSE_S_MAX)
        self.until_s = now_s + self.longest_s * (1 + chance.random()) / 2


class Link:
    """Create it where the broker's epoch is known; `start` listens, `call` asks others, `stop` ends both."""

    def __init__(
        self,
        own: Party,
        *,
        cluster_id: str,
        directory: Directory,
        serve: Serve,
        chance: Chance,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.metrics = LinkMetrics()
        self._own = own
        self._cluster_id = cluster_id
        self._directory = directory
        self._serve = serve
        self._chance = chance
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._server: asyncio.Server | None = None
        self._outgoing: dict[str, Outgoing] = {}
        self._pauses: dict[str, _Pause] = {}
        self._incoming: dict[Incoming, None] = {}
        self._callers: dict[str, Incoming] = {}
        self._connecting: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; gives the address."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept,
            host,
            port,
            ssl=self._server_tls,
            ssl_handshake_timeout=None if self._server_tls is None else HELLO_S,
        )
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    async def stop(self) -> None:
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        for incoming in list(self._incoming):
            incoming.cancel()
        for outgoing in list(self._outgoing.values()):
            outgoing.end("this broker stops")
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def call(self, broker: str, kind: str, body: bytes) -> "asyncio.Future[bytes]":
        """The answer of another broker. Calls to one broker are carried out in the order in which they are made here.

        Raises `Unavailable` when it cannot be reached just now; the answer may be any error of that broker, too.
        """
        return self._to(broker).call(kind, body)

    def members_changed(self) -> None:
        """Brokers that are gone, or have begun a new life, are not waited for, nor are they served."""
        for name, outgoing in list(self._outgoing.items()):
            if self._directory(name) != outgoing.peer:
                outgoing.end("it is fenced, or has begun anew")
        for incoming in list(self._callers.values()):
            caller = incoming.caller
            peer = None if caller is None else self._directory(caller.broker)
            if caller is not None and peer is not None and peer.epoch > caller.epoch:
                incoming.end()

    # -- calling -------------------------------------------------------------------------------------------------

    def _to(self, broker: str) -> Outgoing:
        outgoing = self._outgoing.get(broker)
        if outgoing is not None and not outgoing.is_over:
            return outgoing
        peer = self._directory(broker)
        if self._is_stopped or peer is None or not peer.port:
            raise Unavailable(f"broker {broker or 'nobody'} cannot be reached just now")
        pause = self._pauses.setdefault(broker, _Pause())
        if asyncio.get_running_loop().time() < pause.until_s:
            raise Unavailable(f"broker {broker} did not answer a moment ago")
        outgoing = self._outgoing[broker] = Outgoing(self._own, self._cluster_id, broker, peer, self.metrics)
        task = asyncio.ensure_future(self._connect(outgoing, pause))
        self._connecting[task] = None
        task.add_done_callback(self._connecting.pop)
        return outgoing

    async def _connect(self, outgoing: Outgoing, pause: _Pause) -> None:
        # It counts as a failure until calls have been answered there: who accepts and then refuses must not be asked in a circle.
        pause.grow(asyncio.get_running_loop().time(), self._chance)
        outgoing.on_welcome = lambda: self._reached(pause)
        await outgoing.connect(self._client_tls)

    def _reached(self, pause: _Pause) -> None:
        pause.longest_s = pause.until_s = 0.0

    # -- being called --------------------------------------------------------------------------------------------

    def _accept(self) -> Incoming:
        return Incoming(
            note=self._note, admit=self._admit, forget=self._forget, serve=self._serve, metrics=self.metrics
        )

    def _note(self, incoming: Incoming) -> None:
        """Counted from here on: one whose TLS handshake fails is never connected, and so would never be forgotten."""
        self._incoming[incoming] = None

    def _admit(self, incoming: Incoming, hello: Hello) -> None:
        if len(self._incoming) > CONNECTIONS_MAX:
            raise Overloaded(f"{len(self._incoming)} connections of brokers")
        peer = self._directory(hello.broker)
        check_hello(hello, cluster_id=self._cluster_id, own=self._own, known_epoch=None if peer is None else peer.epoch)
        former = self._callers.get(hello.broker)
        if former is not None:
            former.end()
        self._callers[hello.broker] = incoming

    def _forget(self, incoming: Incoming) -> None:
        self._incoming.pop(incoming, None)
        caller = incoming.caller
        if caller is not None and self._callers.get(caller.broker) is incoming:
            del self._callers[caller.broker]
