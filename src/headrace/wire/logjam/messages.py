"""Messages as ZeroMQ frames: what a client sends, what the server answers, what subscribers get.

    client:      ["" ]app-env, topic, body, meta         an empty first frame asks for a reply
    ping:        "", "ping", app-env, "{}", meta
    subscribers: app-env, topic, body, meta
    heartbeat:   "heartbeat", "tcp://host:port", "{}", meta

Parsing says what is wrong and leaves it to the door what to do about it.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from headrace.errors import InvalidName, MalformedRequest
from headrace.wire.logjam.meta import Meta, decode_meta, encode_meta
from headrace.wire.logjam.names import Stream, is_topic, parse_stream

ACCEPTED: Final = b"202 Accepted"
BAD_REQUEST: Final = b"400 Bad Request"
PING_OK: Final = b"200 OK"
PING: Final = b"ping"
HEARTBEAT: Final = b"heartbeat"
EMPTY_BODY: Final = b"{}"


class ReplyForm(Enum):
    """What stands in front of the status: servers have changed their mind over the years."""

    APP_ENV = "app-env"
    """`[app-env, status]`: today's servers and agents."""
    EMPTY = "empty"
    """`["", status]`: servers of 2016."""
    STATUS = "status"
    """`[status]`: the grammar's."""


class DataMessage(NamedTuple):
    stream: Stream
    app_env: bytes
    topic: bytes
    body: bytes
    meta: Meta


class Ping(NamedTuple):
    app_env: bytes
    meta: Meta


class Envelope(NamedTuple):
    """A message as a ROUTER sees it, without the client's identity."""

    wants_reply: bool
    frames: Sequence[bytes]

    @property
    def is_ping(self) -> bool:
        return self.wants_reply and len(self.frames) > 0 and self.frames[0] == PING


def open_envelope(frames: Sequence[bytes]) -> Envelope:
    """The empty first frame, and nothing else, says that a reply is wanted."""
    if frames and not frames[0]:
        return Envelope(True, frames[1:])
    return Envelope(False, frames)


def parse_data(
    frames: Sequence[bytes], *, is_strict: bool = False, allows_three_frames: bool = False, now_ms: int = 0
) -> DataMessage:
    """Raises `MalformedRequest` for the frame count or the meta frame, `InvalidName` for app-env or topic."""
    if len(frames) == 3 and allows_three_frames:
        app_env, topic, body = frames
        meta = Meta(created_ms=now_ms, sequence=0)
    elif len(frames) == 4:
        app_env, topic, body, meta_frame = frames
        meta = decode_meta(meta_frame)
    else:
        raise MalformedRequest(f"{len(frames)} frames, not 4")
    stream = parse_stream(app_env, is_strict=is_strict)
    if not is_topic(topic, is_strict=is_strict):
        raise InvalidName(f"topic {topic[:80]!r}")
    return DataMessage(stream, app_env, topic, body, meta)


def parse_ping(frames: Sequence[bytes]) -> Ping:
    if len(frames) != 4:
        raise MalformedRequest(f"ping of {len(frames)} frames, not 4")
    return Ping(frames[1], decode_meta(frames[3]))


def build_data(app_env: bytes, topic: bytes, body: bytes, meta: Meta) -> list[bytes]:
    return [app_env, topic, body, encode_meta(meta)]


def build_reply(form: ReplyForm, app_env: bytes, status: bytes) -> list[bytes]:
    match form:
        case ReplyForm.APP_ENV:
            return [app_env, status]
        case ReplyForm.EMPTY:
            return [b"", status]
        case ReplyForm.STATUS:
            return [status]


def build_ping(app_env: bytes, meta: Meta) -> list[bytes]:
    return [b"", PING, app_env, EMPTY_BODY, encode_meta(meta)]


def build_pong(host: str) -> list[bytes]:
    return [PING, PING_OK, host.encode()]


def build_heartbeat(address: str, meta: Meta) -> list[bytes]:
    return [HEARTBEAT, address.encode(), EMPTY_BODY, encode_meta(meta)]
