"""What a log message's JSON body must hold, by the companion document of the protocol.

`decode_request` is for those who want the values. `read_request_id` is for those who pass the body on: it checks
that the body is a JSON object and builds nothing of it.
"""

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from headrace.errors import MalformedRequest

SEVERITY_DEFAULT: Final = 1
SEVERITY_MAX: Final = 5
_REQUEST_ID: Final = re.compile(r"[0-9a-fA-F]{32}")


class _AnyObject(Struct, gc=False):
    """A JSON object of which hardly anything is kept."""

    # Any: whatever stands there, only a text is taken for an id.
    request_id: Any = None


class RequestInfo(Struct, frozen=True, kw_only=True):
    method: str | None = None
    url: str | None = None
    # Any: header values are strings or lists of strings, depending on the agent.
    headers: dict[str, Any] | None = None


class LogRequest(Struct, frozen=True, kw_only=True):
    """One request of an application: the body of a message with a `logs` topic."""

    action: str
    started_at: str
    started_ms: int
    total_time: float
    code: int
    request_id: str
    severity: Annotated[int, Meta(ge=0, le=SEVERITY_MAX)] | None = None
    caller_id: str | None = None
    caller_action: str | None = None
    # Any: a line is [severity, timestamp, text]; agents differ in whether the first is a number.
    lines: list[list[Any]] = []
    exceptions: list[str] = []
    request_info: RequestInfo | None = None

    def effective_severity(self) -> int:
        """Its own severity, else the highest of its lines, else 1."""
        if self.severity is not None:
            return self.severity
        severities = [line[0] for line in self.lines if line and isinstance(line[0], int)]
        return max((s for s in severities if 0 <= s <= SEVERITY_MAX), default=SEVERITY_DEFAULT)


_any_object: Final = msgspec.json.Decoder(_AnyObject)
_log_request: Final = msgspec.json.Decoder(LogRequest)


def read_request_id(body: bytes) -> str | None:
    """The request id, if there is one. Raises `MalformedRequest` unless the body is a JSON object."""
    try:
        # As text, because msgspec skips fields without checking that they are UTF-8.
        found = _any_object.decode(str(body, "utf-8")).request_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"body is no JSON object: {error}") from error
    return found if isinstance(found, str) else None


def decode_request(body: bytes) -> LogRequest:
    try:
        request = _log_request.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"log message: {error}") from error
    if _REQUEST_ID.fullmatch(request.request_id) is None:
        raise MalformedRequest("log message: `request_id` must be 32 hexadecimal digits")
    return request
