"""The API over gRPC, on a port of its own: the same table, the same handlers, the same rights as REST.

A request is decoded to what JSON would have, and goes the same way from there. Errors are `google.rpc.Status` with an
`ErrorInfo` that has Kafka's name and number for them. Health and reflection are there for tools.
"""

import asyncio
import socket
from typing import Any, Final, get_args, get_origin

import grpc
import msgspec
from google.protobuf import any_pb2, descriptor_pool, json_format
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from headrace.admin.api.asking import ask_by_name
from headrace.admin.api.calls import Parts
from headrace.admin.api.elsewhere import hint_of
from headrace.admin.api.table import ROUTES, Route
from headrace.admin.errors import status_of
from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages, plain_type, request_name, response_name
from headrace.admin.grpc.tls import GrpcTls
from headrace.admin.guard import name_of
from headrace.admin.login.callers import Caller
from headrace.errors import HeadraceError, cannot_listen
from headrace.telemetry.logging import get_logger

_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_STOP_S: Final = 2.0
_CODES: Final = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.NOT_FOUND,
    409: code_pb2.FAILED_PRECONDITION,
    410: code_pb2.OUT_OF_RANGE,
    412: code_pb2.ABORTED,
    413: code_pb2.RESOURCE_EXHAUSTED,
    422: code_pb2.INVALID_ARGUMENT,
    501: code_pb2.UNIMPLEMENTED,
    503: code_pb2.UNAVAILABLE,
    504: code_pb2.DEADLINE_EXCEEDED,
}
DOMAIN: Final = "headrace"

log = get_logger(__name__)


class GrpcDoor:
    def __init__(self, listen: str, parts: Parts, tls: GrpcTls | None = None) -> None:
        self._listen = listen
        self._tls = tls
        self._parts = parts
        self._messages = Messages()
        self._server: Any = None  # Any: grpc has no types
        self._port = 0

    @property
    def address(self) -> tuple[str, int]:
        host = self._listen.rpartition(":")[0].strip("[]")
        return ("localhost" if host in ("0.0.0.0", "::") else host), self._port

    async def start(self) -> None:
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX), ("grpc.so_reuseport", 0)]
        )
        name = f"{PACKAGE}.{SERVICE}"
        handlers = {route.name: self._handler(route) for route in ROUTES}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        alive = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(alive, self._server)
        for each in ("", name):
            await alive.set(each, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection(
            (name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server, pool=_Pools(self._messages.pool)
        )
        try:
            self._port = (
                self._server.add_insecure_port(self._listen)
                if self._tls is None
                else self._server.add_secure_port(self._listen, self._tls.credentials())
            )
        except RuntimeError as error:
            number = _number_of_refusal(self._listen)
            raise cannot_listen("listen.grpc", self._listen, number=number, words=str(error)) from error
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(_STOP_S)

    def _handler(self, route: Route) -> Any:  # Any: grpc has no types
        request, response = self._messages.of(request_name(route)), self._messages.of(response_name(route))

        async def call(message: Message, context: Any) -> Message:  # Any: as above
            try:
                principal = await self._parts.gate.principal_of(self._caller(context))
                found = await ask_by_name(route.name, fields_of(message, route.request), principal, self._parts)
                # In a thread: a list of a thousand rows takes protobuf tens of milliseconds.
                return await asyncio.to_thread(json_format.ParseDict, msgspec.to_builtins(found), response())
            except asyncio.CancelledError:
                raise
            except HeadraceError as error:
                await self._refuse(error, str(error), context)
            except Exception as error:
                log.exception("call failed", method=route.name)
                await self._refuse(error, "unforeseen; the node's log has the rest", context)
            raise AssertionError("a refusal ends the call")

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
        )

    def _caller(self, context: Any) -> Caller:  # Any: grpc's context
        """`ipv4:127.0.0.1:52000`, `ipv6:%5B::1%5D:52000`; the header of HTTP is metadata here."""
        peer = str(context.peer()).partition(":")[2].replace("%5B", "[").replace("%5D", "]")
        given = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        return Caller(
            address=name_of(peer),
            is_secure=self._tls is not None,
            certificate=None if self._tls is None else self._tls.principal_of(context.auth_context()),
            authorization=str(given[-1]) if given else "",
        )

    async def _refuse(self, error: BaseException, message: str, context: Any) -> None:  # Any: as above
        known = self._parts.kafka_error(error)
        metadata = {"code": str(known.value)}
        if (hint := hint_of(error, self._parts.broker.identity, "grpc")) is not None:
            metadata["leader_hint"] = hint
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(reason=known.name, domain=DOMAIN, metadata=metadata))
        status = status_pb2.Status(
            code=_CODES.get(status_of(error), code_pb2.INTERNAL), message=message, details=[detail]
        )
        await context.abort_with_status(rpc_status.to_status(status))


def fields_of(message: Message, struct: Any) -> dict[str, Any]:  # Any: a struct type; JSON
    """As JSON has them, and only what was sent: a field at protobuf's default may have another one here.

    What a struct cannot do without counts as sent, for protobuf does not send zeros.
    """
    given: dict[str, Any] = {}  # Any: as above
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        plain, _ = plain_type(field.type)
        value = getattr(message, name)
        descriptor = message.DESCRIPTOR.fields_by_name[name]
        if get_origin(plain) is dict:
            if value:
                given[name] = dict(value)
        elif get_origin(plain) is list:
            if value:
                given[name] = [_item(each, get_args(plain)[0]) for each in value]
        elif descriptor.has_presence:
            if message.HasField(name):
                given[name] = _item(value, plain)
        elif value or field.required:
            given[name] = value
    return given


def _item(value: Any, kind: Any) -> Any:  # Any: protobuf's own, and an annotation
    plain, _ = plain_type(kind)
    return fields_of(value, plain) if isinstance(value, Message) else value


class _Pools:
    """For reflection: our messages, and those of the services beside it."""

    def __init__(self, ours: Any) -> None:  # Any: protobuf's pool
        self._pools = (ours, descriptor_pool.Default())

    def __getattr__(self, name: str) -> Any:  # Any: as above
        def find(*arguments: Any) -> Any:  # Any: as above
            for pool in self._pools:
                try:
                    return getattr(pool, name)(*arguments)
                except KeyError as error:
                    missing = error
            raise missing

        return find


def _number_of_refusal(listen: str) -> int | None:
    """gRPC says only that it failed; the system says why to whoever asks once more."""
    host, _, port = listen.rpartition(":")
    try:
        socket.create_server((host.strip("[]"), int(port))).close()
    except OSError as error:
        return error.errno
    return None
