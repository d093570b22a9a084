"""The admin door: Starlette under uvicorn, inside the node's own event loop.

uvicorn is used as a protocol, not as a process: the node owns the loop, the signals and the log, so its main loop
and its signal handling are never entered. No task runs here while nobody asks.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from headrace.admin.login.callers import CERTIFICATE_STATE, OWNER_STATE
from headrace.admin.routes import routes
from headrace.admin.session import Node
from headrace.admin.settings import AdminSettings
from headrace.errors import Denied, cannot_listen
from headrace.open_files import files_for_connections
from headrace.telemetry.logging import get_logger

SILENT_SECONDS_MAX = 30
"""How long a connection may take to ask its first question."""
STOP_SECONDS_MAX = 5
"""How long a slow reader of an answer may hold up a stop."""

log = get_logger(__name__)


class AdminDoor:
    """Answers about the node over HTTP."""

    def __init__(
        self,
        settings: AdminSettings,
        node: Node,
        *,
        more: Sequence[BaseRoute] = (),
        tls: ssl.SSLContext | None = None,
        certified: Callable[[asyncio.BaseTransport], str | None] = lambda transport: None,
        owner: socket.socket | None = None,
    ) -> None:
        """`more` are the routes of parts that speak HTTP too (REST API, console); ours come first.

        `certified` names the principal of a client's certificate, and raises `Denied` for one that means nobody here. Whoever
        comes through `owner`, a socket in the data directory, is its owner.
        """
        self._settings = settings
        self._tls = tls
        self._owner = owner
        app = self.application = Starlette(routes=[*routes(node), *more])
        """Also for other ways to speak HTTP."""
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=functools.partial(_Connection, certified=certified),  # type: ignore[arg-type]  # uvicorn only calls it
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                ws="none",
                timeout_graceful_shutdown=STOP_SECONDS_MAX,
            )
        )
        self._socket: socket.socket | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where others find this door: what it was told to say, or where it listens."""
        assert self._socket is not None, "the door has not started"
        if self._settings.advertised is not None:
            host, _, port = self._settings.advertised.rpartition(":")
            return host, int(port)
        bound, number = self._socket.getsockname()[:2]
        return "localhost" if bound in ("0.0.0.0", "::") else bound, number

    async def start(self) -> None:
        self._socket = await _bind(self._settings.listen)
        config = self._server.config
        config.load()
        config.ssl = self._tls
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])
        if self._owner is not None:
            server = await asyncio.get_running_loop().create_unix_server(self._connection, sock=self._owner)
            self._server.servers.append(server)

    def _connection(self) -> asyncio.Protocol:
        server = self._server
        make: Callable[..., asyncio.Protocol] = server.config.http_protocol_class
        return make(config=server.config, server_state=server.server_state, app_state=server.lifespan.state)

    async def stop(self) -> None:
        if self._socket is not None:
            await self._server.shutdown(sockets=[self._socket])


class _Connection(AutoHTTPProtocol):  # type: ignore[misc,valid-type]  # uvicorn picks the class when it is imported
    """Counts against the open files like every other connection, and ends when nothing is asked for long."""

    app_state: dict[str, Any]  # Any: of whoever else keeps something there

    # Any: uvicorn's own arguments.
    def __init__(self, *arguments: Any, certified: Callable[[asyncio.BaseTransport], str | None], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._certified = certified

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        try:
            self.app_state = {**self.app_state, **self._proved(transport)}
        except Denied as error:
            log.info("certificate refused", door="admin", reason=str(error))
            transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= files_for_connections():
            transport.abort()
            return
        self._silence = asyncio.get_running_loop().call_later(SILENT_SECONDS_MAX, self._end_silent)

    def _proved(self, transport: asyncio.Transport) -> dict[str, object]:
        """What is true of every request of this connection. By the kind of the socket, which no client chooses."""
        raw = transport.get_extra_info("socket")
        is_owner = raw is not None and raw.family == socket.AF_UNIX
        return {OWNER_STATE: is_owner, CERTIFICATE_STATE: self._certified(transport)}

    def _end_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        silence = getattr(self, "_silence", None)
        if silence is not None:
            silence.cancel()


async def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    loop = asyncio.get_running_loop()
    listener = None
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise cannot_listen("listen.admin", listen, number=error.errno, words=error.strerror) from error
    listener.setblocking(False)
    return listener
