"""The API on a controller: each call goes on to a broker, and from there to whichever one has what it asks for.

A controller holds no records and opens no partition, so it has no answers of its own. Where a call goes is taken from the
registrations of brokers, never from the request; an answer that names another of them (`leader_hint`) is followed once.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import msgspec
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.admin.api.calls import KafkaError
from headrace.admin.grpc.schema import PACKAGE, SERVICE
from headrace.admin.guard import SECURITY_HEADERS, Guard, name_of, reached_address
from headrace.admin.login.callers import Caller, caller_of
from headrace.admin.rest.answers import refusal_of
from headrace.admin.rest.server import read_body
from headrace.errors import Denied, HeadraceError, NotReady, TimedOut, Unauthenticated

_TIMEOUT_S: Final = 60.0
_SENT: Final = ("content-type", "if-match", "idempotency-key", "authorization")
_GIVEN: Final = ("content-type", "etag", "allow", "www-authenticate")

Addresses = Callable[[str], Awaitable[Sequence[str]]]
"""`host:port` of a listener of every broker that serves."""


class Gateway:
    def __init__(
        self,
        addresses: Addresses,
        guard: Guard,
        kafka_error: Callable[[BaseException], KafkaError],
        tls: ssl.SSLContext | None = None,
        *,
        is_plain_allowed: bool = False,
    ) -> None:
        """With `tls` brokers are spoken to so. Without it who somebody is goes to brokers of this machine only."""
        self._addresses = addresses
        self._guard = guard
        self._kafka_error = kafka_error
        self._tls = tls
        self._is_plain_allowed = is_plain_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._respond(Request(scope, receive))
        except ClientDisconnect:
            return
        except HeadraceError as error:
            response = refusal_of(error, self._kafka_error(error), hint=None)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        is_change = request.method not in ("GET", "HEAD")
        self._guard.check(request.headers, is_change=is_change, reached=reached_address(request.scope))
        self._check_caller(caller_of(request))
        path = (request.scope.get("raw_path") or request.scope["path"].encode()).partition(b"?")[0]
        query = request.scope["query_string"]
        target = (path + (b"?" + query if query else b"")).decode("latin-1")
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        body = await read_body(request) if request.method in ("POST", "PATCH", "PUT") else b""
        known = await self._addresses("admin")
        if "authorization" in headers:
            self._check_way(known)
        call = _Call(request.method, target, headers, body, self._tls)
        answer = await _first_that_listens(known, call)
        hint = _hint(answer)
        if hint in known:
            answer = await asyncio.to_thread(_exchange, hint, call)
        given = {name: answer.headers[name] for name in _GIVEN if name in answer.headers}
        return Response(
            answer.body, status_code=answer.status, headers={**given, "cache-control": "no-store", **SECURITY_HEADERS}
        )

    def _check_caller(self, caller: Caller) -> None:
        """Who says who they are is asked by the broker. For it everybody else is this machine, so that is found out here."""
        if not caller.authorization and not caller.is_local:
            raise Unauthenticated(
                "the API answers this machine only, and whoever says who they are: with a password or a token"
            )
        if caller.authorization and not (caller.is_secure or caller.is_local or self._is_plain_allowed):
            raise Denied("passwords and tokens are taken over TLS only, unless security.plain.insecure is set")

    def _check_way(self, brokers: Sequence[str]) -> None:
        is_plain = self._tls is None and not all(Caller(address=name_of(each)).is_local for each in brokers)
        if is_plain and not self._is_plain_allowed:
            raise Denied("passwords and tokens go to brokers of other machines over TLS only: set admin.brokers.ca")


class _Call(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    tls: Any  # Any: a context, which msgspec has no word for

    def __repr__(self) -> str:
        """Without headers: they say who somebody is."""
        return f"_Call({self.method} {self.target})"


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


async def _first_that_listens(addresses: Sequence[str], call: _Call) -> _Answer:
    for address in addresses:
        try:
            return await asyncio.to_thread(_exchange, address, call)
        except ConnectionRefusedError:
            continue  # It is gone, and controllers have not noticed yet.
    raise NotReady("no broker answers that could be asked")


def _exchange(address: str, call: _Call) -> _Answer:
    connection = (
        HTTPConnection(address, timeout=_TIMEOUT_S)
        if call.tls is None
        else HTTPSConnection(address, timeout=_TIMEOUT_S, context=call.tls)
    )
    try:
        connection.request(call.method, call.target, body=call.body or None, headers=dict(call.headers))
        found = connection.getresponse()
        return _Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
    except ConnectionRefusedError:
        raise
    except (OSError, HTTPException) as error:
        raise TimedOut(f"the broker at {address} did not answer: {error}") from error
    finally:
        connection.close()


def _hint(answer: _Answer) -> str:
    if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
        return ""
    try:
        return msgspec.json.decode(answer.body, type=_Hint).leader_hint or ""
    except msgspec.DecodeError:
        return ""


class _Hint(msgspec.Struct):
    leader_hint: str | None = None


class GrpcGateway(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The same over gRPC, beside what brokers ask of a controller: whoever may come in at that port is trusted."""

    def __init__(self, addresses: Addresses, authorities: str | None = None) -> None:
        """With `authorities`, a file of certificates, brokers are spoken to over TLS."""
        self._addresses = addresses
        self._authorities = None if authorities is None else Path(authorities).read_bytes()

    def service(self, details: Any) -> Any:  # Any: grpc's own
        method = details.method
        if not method.startswith(f"/{PACKAGE}.{SERVICE}/"):
            return None

        async def forward(request: bytes, context: Any) -> bytes:  # Any: as above
            known = await self._addresses("grpc")
            if not known:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "no broker answers that could be asked")
            # Who they say they are is for the broker to ask.
            said = tuple(each for each in context.invocation_metadata() or () if each[0] == "authorization")
            if said and self._authorities is None and not Caller(address=name_of(known[0])).is_local:
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    "passwords and tokens go to brokers of other machines over TLS only: set admin.brokers.ca",
                )
            try:
                return await self._call(known[0], method, request, said)
            except grpc.aio.AioRpcError as error:
                failed = error
            try:
                hint = _hint_in(failed)
                if hint in known:
                    return await self._call(hint, method, request, said)
            except grpc.aio.AioRpcError as error:
                failed = error
            await context.abort(failed.code(), failed.details() or "", tuple(failed.trailing_metadata()))
            raise AssertionError("an abort ends the call")

        return grpc.unary_unary_rpc_method_handler(forward)

    # Any: grpc's own
    async def _call(self, address: str, method: str, request: bytes, metadata: Sequence[Any]) -> bytes:
        channel = (
            grpc.aio.insecure_channel(address)
            if self._authorities is None
            else grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(self._authorities))
        )
        async with channel:
            answer: bytes = await channel.unary_unary(method)(request, timeout=_TIMEOUT_S, metadata=metadata)
            return answer


def _hint_in(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    if status is None or not status.details or not status.details[0].Unpack(info):
        return ""
    return str(info.metadata.get("leader_hint", ""))
