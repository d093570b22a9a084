"""Listening sockets and the addresses clients are told."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from headrace.broker.access.words import ANONYMOUS, Principal, parse_principal
from headrace.doors.settings import DoorName, ListenerSettings
from headrace.doors.tls import HANDSHAKE_SECONDS_MAX, Tls, keep_fresh
from headrace.errors import Denied, Invalid, cannot_listen

Address = tuple[str, int]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Listener:
    """One that is open: where it is reached, and what its clients are told."""

    settings: ListenerSettings
    server: asyncio.Server | None = None
    address: Address = ("", 0)
    """Where it listens."""
    advertised: Address = ("", 0)

    tls: Tls | None = None
    principal: Principal = field(init=False)
    """Who everybody is that comes through it, until they say who they are."""

    def __post_init__(self) -> None:
        given = self.settings.principal
        self.principal = ANONYMOUS if given is None else parse_principal(given)

    @property
    def name(self) -> str:
        return self.settings.name

    def principal_of(self, transport: asyncio.BaseTransport) -> Principal:
        """By its certificate, or else who everybody is. Raises `Denied` for a certificate that says nothing to us."""
        by_certificate = None if self.tls is None else self.tls.principal_of(transport)
        return by_certificate or self.principal

    def told(self, reached: Address | None) -> Address:
        """Where a client is told to come back to, who has reached us at `reached`.

        Behind a wildcard there are many addresses; unless somebody has said which one to tell, the one that worked for this
        client will work again.
        """
        settings = self.settings
        if reached is not None and settings.advertised is None and is_wildcard(parse_address(settings.listen)[0]):
            return reached
        return self.advertised


async def open_listeners(
    many: Sequence[ListenerSettings], make: Callable[[Listener], asyncio.BaseProtocol]
) -> list[Listener]:
    """Open all or none; `make` gives the protocol of a connection that has come through its listener."""
    opened: list[Listener] = []
    try:
        for settings in many:
            opened.append(await _open(settings, make))
    except BaseException:
        for listener in opened:
            assert listener.server is not None
            listener.server.close()
        raise
    return opened


async def _open(settings: ListenerSettings, make: Callable[[Listener], asyncio.BaseProtocol]) -> Listener:
    listener = Listener(settings, tls=None if settings.tls_certificate is None else Tls(settings))
    listener.server, listener.address = await listen(
        asyncio.get_running_loop(), lambda: make(listener), settings.listen, key=listen_key(settings), tls=listener.tls
    )
    listener.advertised = advertised_address(settings.advertised, listener.address)
    host, port = listener.address
    log.info("door open", door=settings.door, listener=settings.name, address=f"{host}:{port}")
    return listener


def own_listener(door: DoorName, listen: str, advertised: str | None) -> ListenerSettings:
    """The one that has the name of its door."""
    return ListenerSettings(name=door, door=door, listen=listen, advertised=advertised)


def host_of(transport: asyncio.BaseTransport) -> str:
    """The client's address, as access rules name it; empty for one that has none, or is gone."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    # A listener on [::] sees clients of IPv4 so. They are the same hosts.
    return str(getattr(address, "ipv4_mapped", None) or address)


def principal_or_none(listener: Listener, transport: asyncio.BaseTransport) -> Principal | None:
    """None for a client that must not come in: its certificate is good, and means nobody here."""
    try:
        return listener.principal_of(transport)
    except Denied as error:
        log.info("certificate refused", listener=listener.name, reason=str(error))
        return None


async def keep_certificates_fresh(listeners: Sequence[Listener]) -> None:
    """For as long as the door is open."""
    if many := [each.tls for each in listeners if each.tls is not None]:
        await keep_fresh(many)


def listen_key(settings: ListenerSettings) -> str:
    """The setting that says where it listens."""
    return f"listen.{settings.door}" if settings.name == settings.door else f"listener.{settings.name}.listen"


def parse_address(text: str) -> Address:
    """`HOST:PORT`, also `[::1]:9092`; raises `Invalid`."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


async def listen(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], asyncio.BaseProtocol],
    text: str,
    *,
    key: str,
    tls: Tls | None = None,
) -> tuple[asyncio.Server, Address]:
    """Listen on `text`, which the setting `key` says; gives the server and the address it has (port 0 takes a free one)."""
    host, port = parse_address(text)
    try:
        server = await loop.create_server(
            make,
            host,
            port,
            backlog=4096,
            reuse_address=True,
            ssl=None if tls is None else tls.context,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS_MAX,
        )
    except OSError as error:
        raise cannot_listen(key, text, number=error.errno, words=error.strerror) from error
    for listening in server.sockets:
        _do_not_pace(listening)
    bound = server.sockets[0].getsockname()
    return server, (bound[0], bound[1])


def _do_not_pace(listening: socket.socket) -> None:
    """Clients on this very machine are sent to as fast as they read.

    Where the system's congestion control is BBR it spaces packets by timers, though there is no network to be spared: an answer
    of a megabyte then costs two to three times the CPU. Connections inherit what their listener has.
    """
    if ipaddress.ip_address(listening.getsockname()[0]).is_loopback:
        with contextlib.suppress(OSError, AttributeError):  # Not built in, or another system: it stays as it is.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def advertised_address(configured: str | None, bound: Address) -> Address:
    """What clients should connect to: as configured, else the bound address, with a name in place of a wildcard."""
    if configured is not None:
        host, port = parse_address(configured)
        return host, port or bound[1]
    host, port = bound
    return ("localhost" if is_wildcard(host) else host), port


def is_wildcard(host: str) -> bool:
    """Whether a listener on `host` is reached under many addresses."""
    return host in ("0.0.0.0", "::", "")
