"""What the clients raise, beyond what a server said in its own words."""

from collections.abc import Mapping
from typing import Any

from headrace.errors import Rejected, Unavailable
from headrace.wire.rustlog.codes import is_client_error
from headrace.wire.rustlog.messages import Error


class ClientError(Rejected):
    """RustLog 4xx: the request must change; sending it again will not help."""

    def __init__(self, code: int, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ServerError(Unavailable):
    """RustLog 5xx: the same request may succeed later."""

    def __init__(self, code: int, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class UnexpectedResponse(Unavailable):
    """The server answered with something that does not answer the question."""


def rustlog_error(error: Error) -> ClientError | ServerError:
    kind = ClientError if is_client_error(error.code) else ServerError
    return kind(error.code, error.message, error.details)
