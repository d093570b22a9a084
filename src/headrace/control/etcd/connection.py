"""Calls to an etcd of several members: one at a time, the next when it does not answer.

What etcd refuses becomes the error that the port promises. A call that only reads is repeated at another member; one that may
have written is not, and ends with `OutcomeUnknown`: whoever asked reads what is true and decides.
"""

import asyncio
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from headrace.control.etcd.settings import EtcdSettings
from headrace.errors import (
    Conflict,
    HeadraceError,
    Invalid,
    LeaseNotFound,
    NotReady,
    OutcomeUnknown,
    Overloaded,
    RevisionCompacted,
    StorageFailed,
    TooLarge,
    Unavailable,
)

CALL_S: Final = 1.5
"""Of one member for one call. What a follower has passed on to a leader that is dead is lost, and the follower waits for seven seconds all
the same: who asks again once another leads, in one to two seconds, is served long before that."""
_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
    # A member that went without a word is noticed by watches too.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_CONNECTING: Final = "Failed to connect to remote host: "
_MAY_HAVE_HAPPENED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    }
)


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...


Reply = TypeVar("Reply", bound=Any)  # A generated message; the generator gives them no common type that says so.


class EtcdConnection:
    def __init__(self, settings: EtcdSettings, *, call_s: float = CALL_S) -> None:
        if not settings.endpoints:
            raise Invalid("metastore.endpoints names no member of an etcd")
        self._channels = [open_channel(endpoint, settings) for endpoint in settings.endpoints]
        self._names = settings.names
        self._current = 0
        self._call_s = call_s
        self._under_way: set[asyncio.Task[Any]] = set()
        self.is_closed = False

    async def read(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """Repeated at the other members while one does not answer."""
        for attempt in range(len(self._channels), -1, -1):
            try:
                return await self._call(method, request, reply)
            except OutcomeUnknown as error:
                if not attempt:
                    raise Unavailable(str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    async def write(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        return await self._call(method, request, reply)

    async def ask_once(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """Of a call of many requests and replies, one of each. Repeating it is harmless."""
        member = self._current
        stream = self.stream(method, type(request), reply)
        try:
            async with asyncio.timeout(self._call_s):
                await stream.write(request)
                await stream.done_writing()
                found = await stream.read()
        except grpc.aio.AioRpcError as error:
            self.note_failure(member)
            raise Unavailable(f"{self._names[member]}: {_reason(error)}") from error
        except TimeoutError as error:
            self.note_failure(member)
            raise Unavailable(f"{self._names[member]} does not answer") from error
        finally:
            stream.cancel()
        if found is grpc.aio.EOF:
            raise Unavailable(f"{self._names[member]} ended a call without a word")
        answer: Reply = found
        return answer

    def stream(self, method: str, request: type[Message], reply: type[Reply]) -> Any:
        """A call of many requests and replies, to the current member. grpc.aio's calls have no types."""
        self.check_open()
        stub = self._channels[self._current].stream_stream(
            method, request_serializer=serialize, response_deserializer=reply.FromString
        )
        return stub(wait_for_ready=False)

    def note_failure(self, member: int) -> None:
        """The next calls go to another one."""
        if member == self._current:
            self._current = (self._current + 1) % len(self._channels)

    @property
    def member(self) -> int:
        return self._current

    def check_open(self) -> None:
        if self.is_closed:
            raise NotReady("metastore is closed")

    async def close(self) -> None:
        """Calls under way end first, watches at once."""
        self.is_closed = True
        await asyncio.gather(*self._under_way, return_exceptions=True)
        for channel in self._channels:
            await channel.close()

    async def _call(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        self.check_open()
        task = asyncio.ensure_future(self._ask(method, request, reply))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        # Shielded: what was sent is seen through, also when nobody waits any more.
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # Looked at: of one that nobody waits for any more, nobody wants to hear.

    async def _ask(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        member = self._current
        stub = self._channels[member].unary_unary(
            method, request_serializer=serialize, response_deserializer=reply.FromString
        )
        try:
            found: Reply = await stub(request, timeout=self._call_s)
        except grpc.aio.AioRpcError as error:
            if error.code() in _MAY_HAVE_HAPPENED:
                self.note_failure(member)
            raise refusal_of(error, self._names[member]) from error
        return found


def refusal_of(error: grpc.aio.AioRpcError, member: str) -> HeadraceError:
    """What `member` said, in the port's words."""
    said = f"{member}: {_reason(error)}"
    details = (error.details() or "").lower()
    match error.code():
        case grpc.StatusCode.INVALID_ARGUMENT if "too many operations" in details or "too large" in details:
            return TooLarge(said)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            return Invalid(said)
        case grpc.StatusCode.NOT_FOUND if "lease" in details:
            return LeaseNotFound(said)
        case grpc.StatusCode.ALREADY_EXISTS:
            return Conflict(said)
        case grpc.StatusCode.OUT_OF_RANGE:
            return RevisionCompacted(said)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Overloaded(said)
        case grpc.StatusCode.DATA_LOSS | grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.UNIMPLEMENTED:
            return StorageFailed(said)
        case _:
            return OutcomeUnknown(said)


def _reason(error: grpc.aio.AioRpcError) -> str:
    """Of a connection that did not come about, the system's own word; the library wraps it in the history of its attempts."""
    details: str = error.details() or error.code().name
    return details.rpartition(_CONNECTING)[2]


def open_channel(endpoint: str, settings: EtcdSettings) -> grpc.aio.Channel:
    """Nothing is sent before the first call."""
    if not settings.ca_file:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        file_bytes(settings.ca_file),
        file_bytes(settings.key_file) if settings.key_file else None,
        file_bytes(settings.cert_file) if settings.cert_file else None,
    )
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)


def file_bytes(path: str) -> bytes:
    """Raises `Invalid` with the reason."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from error


def serialize(message: Message) -> bytes:
    return message.SerializeToString()
