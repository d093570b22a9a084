"""The API on a controller: each call goes on to a broker, and from there to whichever one has what it asks for.

A controller holds no records and opens no partition, so it has no answers of its own. Where a call goes is taken from the
registrations of brokers, never from the request; an answer that names another of them (`leader_hint`) is followed once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
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
from headrace.admin.guard import SECURITY_HEADERS, Guard
from headrace.admin.rest.answers import refusal_of
from headrace.admin.rest.server import read_body
from headrace.admin.rights import Caller, LoopbackGate
from headrace.errors import HeadraceError, NotReady, TimedOut

_TIMEOUT_S: Final = 60.0
_SENT: Final = ("content-type", "if-match", "idempotency-key", "authorization")
_GIVEN: Final = ("content-type", "etag", "allow", "www-authenticate")

Addresses = Callable[[str], Awaitable[Sequence[str]]]
"""`host:port` of a listener of every broker that serves."""


class Gateway:
    def __init__(self, addresses: Addresses, guard: Guard, kafka_error: Callable[[BaseException], KafkaError]) -> None:
        self._addresses = addresses
        self._guard = guard
        self._gate = LoopbackGate()
        self._kafka_error = kafka_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._respond(Request(scope, receive))
        except ClientDisconnect:
            return
        except HeadraceError as error:
            response = refusal_of(error, self._kafka_error(error), hint=None)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        self._guard.check(request.headers, is_change=request.method not in ("GET", "HEAD"))
        # For the broker whoever asks is this machine, so it is found out here.
        self._gate.principal_of(Caller(address=request.client.host if request.client is not None else ""))
        path = (request.scope.get("raw_path") or request.scope["path"].encode()).partition(b"?")[0]
        query = request.scope["query_string"]
        target = (path + (b"?" + query if query else b"")).decode("latin-1")
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        body = await read_body(request) if request.method in ("POST", "PATCH", "PUT") else b""
        known = await self._addresses("admin")
        answer = await _first_that_listens(known, request.method, target, headers, body)
        hint = _hint(answer)
        if hint in known:
            answer = await asyncio.to_thread(_exchange, hint, request.method, target, headers, body)
        given = {name: answer.headers[name] for name in _GIVEN if name in answer.headers}
        return Response(
            answer.body, status_code=answer.status, headers={**given, "cache-control": "no-store", **SECURITY_HEADERS}
        )


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


async def _first_that_listens(
    addresses: Sequence[str], method: str, target: str, headers: Mapping[str, str], body: bytes
) -> _Answer:
    for address in addresses:
        try:
            return await asyncio.to_thread(_exchange, address, method, target, headers, body)
        except ConnectionRefusedError:
            continue  # It is gone, and controllers have not noticed yet.
    raise NotReady("no broker answers that could be asked")


def _exchange(address: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
    connection = HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request(method, target, body=body or None, headers=dict(headers))
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

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def service(self, details: Any) -> Any:  # Any: grpc's own
        method = details.method
        if not method.startswith(f"/{PACKAGE}.{SERVICE}/"):
            return None

        async def forward(request: bytes, context: Any) -> bytes:  # Any: as above
            known = await self._addresses("grpc")
            if not known:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "no broker answers that could be asked")
            try:
                return await _call(known[0], method, request)
            except grpc.aio.AioRpcError as error:
                failed = error
            try:
                hint = _hint_in(failed)
                if hint in known:
                    return await _call(hint, method, request)
            except grpc.aio.AioRpcError as error:
                failed = error
            await context.abort(failed.code(), failed.details() or "", tuple(failed.trailing_metadata()))
            raise AssertionError("an abort ends the call")

        return grpc.unary_unary_rpc_method_handler(forward)


async def _call(address: str, method: str, request: bytes) -> bytes:
    async with grpc.aio.insecure_channel(address) as channel:
        answer: bytes = await channel.unary_unary(method)(request, timeout=_TIMEOUT_S)
        return answer


def _hint_in(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    if status is None or not status.details or not status.details[0].Unpack(info):
        return ""
    return str(info.metadata.get("leader_hint", ""))
