"""The API and the console, put together as routes of the admin door."""

import ssl
from collections.abc import Callable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.admin.api.calls import KafkaError, Parts
from headrace.admin.api.table import PREFIX
from headrace.admin.console.server import Console
from headrace.admin.gateway import Addresses, Gateway
from headrace.admin.guard import Guard, name_of
from headrace.admin.rest.server import RestApi
from headrace.admin.settings import AdminSettings


def api_routes(parts: Parts, settings: AdminSettings) -> list[BaseRoute]:
    guard = Guard(_hosts(settings))
    return [Below(PREFIX, RestApi(parts, guard)), Below("", Console(parts, guard))]


def gateway_routes(
    settings: AdminSettings,
    addresses: Addresses,
    kafka_error: Callable[[BaseException], KafkaError],
    *,
    is_plain_allowed: bool = False,
) -> list[BaseRoute]:
    """The API where no broker runs; the console is that of the brokers."""
    tls = None if settings.brokers_ca is None else ssl.create_default_context(cafile=settings.brokers_ca)
    gateway = Gateway(addresses, Guard(_hosts(settings)), kafka_error, tls, is_plain_allowed=is_plain_allowed)
    return [Below(PREFIX, gateway)]


class Below(BaseRoute):
    """Everything below a path goes to one application, whatever characters follow. Starlette's `Mount` leaves out paths with a
    line break in them, and groups may have such names."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self._path = path
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_below = scope["type"] == "http" and (scope["path"] + "/").startswith(self._path + "/")
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _hosts(settings: AdminSettings) -> list[str]:
    """Names by which this node is called: those it was told, and the address it listens on where that is one."""
    named = [name_of(address) for address in (settings.listen, settings.advertised or "")]
    return [*settings.hosts, *(name for name in named if name not in ("", "0.0.0.0", "::"))]
