"""What every answer looks like: {success, data, error, leader_hint}, and an ETag where the state has a revision."""

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from headrace.admin.api.calls import KafkaError, Parts
from headrace.admin.api.elsewhere import hint_of
from headrace.admin.errors import status_of
from headrace.admin.guard import SECURITY_HEADERS
from headrace.admin.rest.requests import NoSuchMethod
from headrace.errors import HeadraceError, Unauthenticated


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    """Kafka's number for it."""
    reason: str
    """Kafka's name for it."""
    message: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool
    data: Any = None  # Any: the route's own response
    error: ErrorBody | None = None
    leader_hint: str | None = None
    """`host:port` of the API of the broker that has it; one node never says so."""


def answer(data: Any) -> Response:  # Any: as above
    response = _encoded(Envelope(success=True, data=data), HTTPStatus.OK)
    revision = getattr(data, "revision", None)
    if isinstance(revision, str):
        response.headers["etag"] = f'"{revision}"'
    return response


def refusal(error: BaseException, parts: Parts) -> Response:
    return refusal_of(error, parts.kafka_error(error), hint=hint_of(error, parts.broker.identity, "admin"))


def refusal_of(error: BaseException, known: KafkaError, *, hint: str | None) -> Response:
    """`error` in words where it is ours; what nobody foresaw says nothing of our insides."""
    message = str(error) if isinstance(error, HeadraceError) else "unforeseen; the node's log has the rest"
    body = ErrorBody(code=known.value, reason=known.name, message=message)
    status = HTTPStatus.METHOD_NOT_ALLOWED if isinstance(error, NoSuchMethod) else status_of(error)
    response = _encoded(Envelope(success=False, error=body, leader_hint=hint), status)
    if isinstance(error, Unauthenticated):
        # Not Basic, though that is taken too: a browser would ask for a password, keep it, and send it along with whatever
        # other sites make it send.
        response.headers["www-authenticate"] = 'Bearer realm="headrace"'
    if isinstance(error, NoSuchMethod):
        response.headers["allow"] = ", ".join(error.allowed)
    return response


def _encoded(envelope: Envelope, status: HTTPStatus) -> Response:
    return Response(
        msgspec.json.encode(envelope),
        status_code=status,
        media_type="application/json",
        headers={"cache-control": "no-store", **SECURITY_HEADERS},
    )
