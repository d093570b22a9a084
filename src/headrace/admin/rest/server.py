"""The API as an ASGI application: guard, route, read, ask, answer. Nothing here knows what a topic is."""

from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.admin.api.asking import ask
from headrace.admin.api.calls import Parts
from headrace.admin.api.table import PREFIX
from headrace.admin.guard import SECURITY_HEADERS, Guard, reached_address
from headrace.admin.login.callers import caller_of
from headrace.admin.login.cookies import session_of
from headrace.admin.rest.answers import answer, refusal
from headrace.admin.rest.openapi import document
from headrace.admin.rest.repeats import Repeats
from headrace.admin.rest.requests import find_route, read_request
from headrace.errors import HeadraceError, Invalid, TooLarge
from headrace.telemetry.logging import get_logger

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""A record of ten megabytes in base64, and its envelope."""
OPENAPI_PATH: Final = f"{PREFIX}/openapi.json"

log = get_logger(__name__)


class RestApi:
    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._parts = parts
        self._guard = guard
        self._repeats = Repeats()
        self._openapi = msgspec.json.encode(document())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        except HeadraceError as error:
            response = refusal(error, self._parts)
        except Exception as error:
            log.exception("request failed", method=request.method, path=request.url.path)
            response = refusal(error, self._parts)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        is_change = request.method not in ("GET", "HEAD")
        self._guard.check(request.headers, is_change=is_change, reached=reached_address(request.scope))
        # A cookie reads, and changes nothing: a browser sends it by itself, and the header of a program it does not.
        caller = caller_of(request, session="" if is_change else session_of(request))
        principal = await self._parts.gate.principal_of(caller)
        if request.method == "GET" and request.url.path == OPENAPI_PATH:
            return Response(self._openapi, media_type="application/json", headers=SECURITY_HEADERS)
        route, names = find_route(request.method, request.scope.get("raw_path") or request.url.path.encode())
        body = await read_body(request) if route.has_body else b""

        async def respond() -> Response:
            asked = read_request(route, names, request.scope["query_string"], body, request.headers)
            return answer(await ask(route, asked, principal, self._parts))

        key = request.headers.get("idempotency-key")
        if key is None or request.method != "POST":
            return await respond()
        # Nobody learns what others were answered.
        whole = b"\n".join((request.scope["path"].encode(), request.scope["query_string"], body))
        return await self._repeats.once(f"{principal.name} {key}", whole, respond)


async def read_body(request: Request) -> bytes:
    _check_type(request.headers)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise TooLarge(f"body of more than {BODY_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _check_type(headers: Headers) -> None:
    """A form of another site can send text or a form, but not this type without asking first."""
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Invalid("body: content-type must be application/json")
