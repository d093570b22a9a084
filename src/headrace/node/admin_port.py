"""How the admin ports are opened: HTTP and gRPC, their certificate, the owner's socket beside them, and the address of the first login."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
import structlog
from starlette.types import ASGIApp

from headrace.admin.api.calls import Parts
from headrace.admin.application import api_routes
from headrace.admin.grpc.server import GrpcDoor
from headrace.admin.grpc.tls import GrpcTls
from headrace.admin.login.entrance import Entrance
from headrace.admin.server import AdminDoor
from headrace.admin.session import Node
from headrace.admin.settings import AdminSettings
from headrace.doors.kafka.owner import reachable
from headrace.doors.settings import ListenerSettings
from headrace.doors.tls import Tls, keep_fresh, map_name, parse_rule
from headrace.errors import Fault

SOCKET_NAME: Final = "admin.sock"
_BACKLOG: Final = 16

log = structlog.get_logger(__name__)


class AdminPort(msgspec.Struct, frozen=True):
    http: tuple[str, int]
    grpc: tuple[str, int]
    application: ASGIApp


async def open_admin_port(
    parts: Parts,
    settings: AdminSettings,
    listener: ListenerSettings,
    *,
    view: Node,
    directory: Path,
    running: AsyncExitStack,
) -> AdminPort:
    """Both ports answer when it returns; `running` closes them."""
    if (tls := admin_tls(listener)) is not None:
        running.callback(asyncio.create_task(keep_fresh([tls.http])).cancel)
    owner = open_owner_socket(directory)
    running.callback(remove_owner_socket, directory)
    running.callback(owner.close)
    admin = AdminDoor(
        settings,
        view,
        more=api_routes(parts, settings),
        tls=None if tls is None else tls.http.context,
        certified=(lambda transport: None) if tls is None else tls.certified,
        owner=owner,
    )
    await admin.start()
    running.push_async_callback(admin.stop)
    offer_first_login(parts.gate, console_address(admin.address, is_tls=tls is not None))
    rpc = GrpcDoor(settings.listen_grpc, parts, None if tls is None else tls.grpc)
    running.push_async_callback(rpc.stop)
    await rpc.start()
    return AdminPort(admin.address, rpc.address, admin.application)


class AdminTls(msgspec.Struct, frozen=True):
    """Of the listener that has a certificate."""

    http: Tls
    grpc: GrpcTls

    def certified(self, transport: asyncio.BaseTransport) -> str | None:
        found = self.http.principal_of(transport)
        return None if found is None else str(found)


def admin_tls(listener: ListenerSettings) -> AdminTls | None:
    if listener.tls_certificate is None:
        return None
    assert listener.tls_key is not None
    rules = [parse_rule(each) for each in listener.tls_principal_rules]

    def name_of(certificate: bytes) -> str:
        from cryptography import x509  # Loaded only where clients show certificates.

        return "User:" + map_name(x509.load_pem_x509_certificate(certificate).subject.rfc4514_string(), rules)

    is_asked = listener.tls_client_auth == "required" and listener.tls_client_ca is not None
    authorities = Path(str(listener.tls_client_ca)) if is_asked else None
    return AdminTls(
        Tls(listener),
        GrpcTls(Path(listener.tls_certificate), Path(listener.tls_key), authorities=authorities, name_of=name_of),
    )


def open_owner_socket(directory: Path) -> socket.socket:
    """The directory is this process's alone, and others may not look into it: so neither may they connect."""
    remove_owner_socket(directory)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(directory) as short:
            listening.bind(f"{short}/{SOCKET_NAME}")
        (directory / SOCKET_NAME).chmod(0o600)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise Fault(f"cannot listen in {directory}: {error}") from error
    listening.setblocking(False)
    return listening


def remove_owner_socket(directory: Path) -> None:
    (directory / SOCKET_NAME).unlink(missing_ok=True)


def console_address(address: tuple[str, int], *, is_tls: bool) -> str:
    host, port = address
    return f"{'https' if is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"


def offer_first_login(entrance: Entrance, console: str) -> None:
    """Where nobody could log in. Not the address itself: logs are read by many."""
    path = entrance.first.offer(console, is_needed=entrance.is_login_asked)
    if path is not None:
        log.warning(
            "there is no user yet: the file has the address of the console where the first is made", file=str(path)
        )
