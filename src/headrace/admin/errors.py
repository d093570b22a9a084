"""Our errors as HTTP has them. The nearest mapped ancestor wins; what nobody foresaw is 500.

The reason in an answer is the name of Kafka's error, which the node's Kafka door decides for every door (`session.Node`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from headrace import errors


class StaleTag(errors.Conflict):
    """If-Match names a state that is not the present one any more."""


class RepeatedKey(errors.Conflict):
    """An Idempotency-Key came again with another request."""


_STATUS: Final[Mapping[type[BaseException], HTTPStatus]] = {
    BaseException: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.Rejected: HTTPStatus.BAD_REQUEST,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedOperation: HTTPStatus.NOT_IMPLEMENTED,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    StaleTag: HTTPStatus.PRECONDITION_FAILED,
    RepeatedKey: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RevisionCompacted: HTTPStatus.GONE,
    errors.Denied: HTTPStatus.FORBIDDEN,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.TimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    errors.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Fault: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(error: BaseException) -> HTTPStatus:
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
