"""Frames of the link between brokers: a header as mlog has it (type, 2 bytes; size, 4 bytes), and a MessagePack array.

- `Hello` is the first frame of a connection: which cluster, who calls under which broker epoch, and whom it means. The answer is
  `Welcome`, or a `Refusal` with number 0.
- `Call` asks for something; `Answer` or `Refusal` with the same number follows, in whatever order.
- `Ping` and `Pong` show that somebody is still there while calls take long.

What a call means is its caller's business: `body` is opaque here. Fields are added at the end of a message, with a default: an older
reader leaves out what it does not know. Types 0 and 1 stay free for the records of replicas.
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.framing import FrameReader

VERSION: Final = 1
FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest request of a client that is passed on, and room for what is said about it."""


class FrameType(IntEnum):
    HELLO = 16
    WELCOME = 17
    CALL = 18
    ANSWER = 19
    REFUSAL = 20
    PING = 21
    PONG = 22


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Hello(_Message, frozen=True):
    version: int
    cluster_id: str
    broker: str
    """Who calls."""
    broker_epoch: int
    to_broker: str
    """Who is meant, in which incarnation: an address may be another's by now."""
    to_epoch: int


class Welcome(_Message, frozen=True):
    version: int


class Call(_Message, frozen=True):
    number: int
    kind: str
    body: bytes


class Answer(_Message, frozen=True):
    number: int
    body: bytes


class Refusal(_Message, frozen=True):
    number: int
    """Of the call; 0 of the connection as a whole."""
    error: str
    """Its name in `headrace.errors`."""
    message: str
    broker: str = ""
    """Who has it instead, where that is known."""


class Ping(_Message, frozen=True):
    pass


class Pong(_Message, frozen=True):
    pass


Message: TypeAlias = Hello | Welcome | Call | Answer | Refusal | Ping | Pong

_HEADER: Final = Struct(">HI")
_KINDS: Final[Mapping[int, type[Message]]] = {
    FrameType.HELLO: Hello,
    FrameType.WELCOME: Welcome,
    FrameType.CALL: Call,
    FrameType.ANSWER: Answer,
    FrameType.REFUSAL: Refusal,
    FrameType.PING: Ping,
    FrameType.PONG: Pong,
}
_TYPES: Final = {kind: number for number, kind in _KINDS.items()}
_DECODERS: Final[Mapping[int, msgspec.msgpack.Decoder[Any]]] = {
    number: msgspec.msgpack.Decoder(kind) for number, kind in _KINDS.items()
}
_encoder: Final = msgspec.msgpack.Encoder()


def frame_reader() -> FrameReader:
    """Frames whose header is (type, size)."""
    return FrameReader(_HEADER, payload_bytes_max=FRAME_BYTES_MAX)


def encode(message: Message) -> bytes:
    payload = _encoder.encode(message)
    if len(payload) > FRAME_BYTES_MAX:
        raise TooLarge(f"a frame of {len(payload)} bytes for another broker; the limit is {FRAME_BYTES_MAX}")
    return _HEADER.pack(_TYPES[type(message)], len(payload)) + payload


def decode(frame_type: int, payload: bytes) -> Message:
    decoder = _DECODERS.get(frame_type)
    if decoder is None:
        raise MalformedRequest(f"frame of type {frame_type}, which nobody sends")
    try:
        message: Message = decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"frame of type {frame_type}: {error}") from error
    return message
