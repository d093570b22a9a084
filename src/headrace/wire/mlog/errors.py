"""What goes wrong on an mlog connection, and when that means looking for the leader again."""

import errno
from typing import Final

from headrace.errors import HeadraceError
from headrace.wire.mlog.codes import ErrorCode
from headrace.wire.mlog.messages import RPCErrorResponse


class RPCError(HeadraceError):
    """The server answered with an RPCError frame. Its text is the server's message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @classmethod
    def of(cls, response: RPCErrorResponse) -> "RPCError":
        return cls(response.code, response.message)


class ConnectionClosed(HeadraceError):
    """The connection was used after it had been closed."""


_LEADER_MOVED: Final = frozenset(
    {ErrorCode.NOT_TOPIC_LEADER, ErrorCode.TOPIC_NOT_FOUND, ErrorCode.RAFT_LEADER_UNAVAILABLE}
)
_NETWORK_ERRNOS: Final = frozenset(
    {
        errno.ECONNRESET,
        errno.EPIPE,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.ETIMEDOUT,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENOTCONN,
        errno.EADDRNOTAVAIL,
        errno.EBADF,
    }
)


def should_reconnect(error: BaseException | None) -> bool:
    """Does `error` mean that the leader must be found again? Causes count as the error itself."""
    while error is not None:
        if isinstance(error, RPCError):
            return error.code in _LEADER_MOVED
        if _is_network_error(error):
            return True
        error = error.__cause__
    return False


def _is_network_error(error: BaseException) -> bool:
    if isinstance(error, EOFError | ConnectionError | TimeoutError | ConnectionClosed):
        return True
    if not isinstance(error, OSError) or error.errno is None:
        return False
    # Failures of name resolution carry getaddrinfo's negative codes.
    return error.errno in _NETWORK_ERRNOS or error.errno < 0
