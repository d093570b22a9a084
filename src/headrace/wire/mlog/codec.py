"""mlog bytes to values and back: `MESSAGES` is the whole protocol, read in both directions.

Payloads written the way Go writes them take the fast path. Whatever that refuses is read a second time with
Go's leniency: names in any case, unknown fields dropped, null for anything meaning its zero value.
"""

import struct
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.framing import FrameReader
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, MessageType

MESSAGES: Final[dict[MessageType, type[m.Message]]] = {
    MessageType.REPLICATE_STREAM: m.ReplicateRequest,
    MessageType.REPLICATE_RESP: m.ReplicateResponse,
    MessageType.PRODUCE: m.ProduceRequest,
    MessageType.PRODUCE_RESP: m.ProduceResponse,
    MessageType.PRODUCE_BATCH: m.ProduceBatchRequest,
    MessageType.PRODUCE_BATCH_RESP: m.ProduceBatchResponse,
    MessageType.FETCH: m.FetchRequest,
    MessageType.FETCH_RESP: m.FetchResponse,
    MessageType.FETCH_BATCH: m.FetchBatchRequest,
    MessageType.FETCH_BATCH_RESP: m.FetchBatchResponse,
    MessageType.FETCH_STREAM: m.FetchStreamRequest,
    MessageType.FETCH_STREAM_RESP: m.FetchStreamResponse,
    MessageType.COMMIT_OFFSET: m.CommitOffsetRequest,
    MessageType.COMMIT_OFFSET_RESP: m.CommitOffsetResponse,
    MessageType.FETCH_OFFSET: m.FetchOffsetRequest,
    MessageType.FETCH_OFFSET_RESP: m.FetchOffsetResponse,
    MessageType.CREATE_TOPIC: m.CreateTopicRequest,
    MessageType.CREATE_TOPIC_RESP: m.CreateTopicResponse,
    MessageType.DELETE_TOPIC: m.DeleteTopicRequest,
    MessageType.DELETE_TOPIC_RESP: m.DeleteTopicResponse,
    MessageType.RPC_ERROR: m.RPCErrorResponse,
    MessageType.FIND_TOPIC_LEADER: m.FindTopicLeaderRequest,
    MessageType.FIND_TOPIC_LEADER_RESP: m.FindTopicLeaderResponse,
    MessageType.FIND_RAFT_LEADER: m.FindRaftLeaderRequest,
    MessageType.FIND_RAFT_LEADER_RESP: m.FindRaftLeaderResponse,
    MessageType.LIST_TOPICS: m.ListTopicsRequest,
    MessageType.LIST_TOPICS_RESP: m.ListTopicsResponse,
    MessageType.APPLY_ISR_UPDATE_EVENT: m.ApplyIsrUpdateEventRequest,
    MessageType.APPLY_ISR_UPDATE_EVENT_RESP: m.ApplyIsrUpdateEventResponse,
}
"""One line per message type, for encode and decode alike."""

_HEADER: Final = struct.Struct(">HI")
_TYPES: Final = {message: message_type for message_type, message in MESSAGES.items()}
_DECODERS: Final[dict[int, msgspec.json.Decoder[Any]]] = {
    int(message_type): msgspec.json.Decoder(message) for message_type, message in MESSAGES.items()
}
_encoder: Final = msgspec.json.Encoder()


class FrameTooLarge(TooLarge):
    def __init__(self) -> None:
        super().__init__("protocol: frame exceeds max size")


class UnknownMessageType(MalformedRequest):
    def __init__(self, message_type: int) -> None:
        # The text says "encode" when decoding too; the Go code shares one error for both.
        super().__init__(f"protocol: can not encode type: {message_type}")


class Decoded(NamedTuple):
    message_type: MessageType
    message: m.Message


def frame_reader(frame_bytes_max: int = FRAME_BYTES_MAX) -> FrameReader:
    """Frames whose header is (message type, payload size)."""
    return FrameReader(_HEADER, payload_bytes_max=frame_bytes_max)


def encode(message: m.Message) -> bytes:
    """One message as a frame: header and payload in one piece, to be written at once."""
    message_type = _TYPES.get(type(message))
    if message_type is None:
        raise UnknownMessageType(0)
    return encode_frame(message_type, _encoder.encode(message))


def encode_frame(message_type: int, payload: bytes) -> bytes:
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameTooLarge
    return _HEADER.pack(message_type, len(payload)) + payload


def decode(message_type: int, payload: bytes | memoryview) -> m.Message:
    decoder = _DECODERS.get(message_type)
    if decoder is None:
        raise UnknownMessageType(message_type)
    try:
        message: m.Message = decoder.decode(payload)
    except msgspec.ValidationError:
        message = _decode_leniently(MESSAGES[MessageType(message_type)], payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"payload of type {message_type}: {error}") from error
    return message


def decode_frame(frame: bytes) -> Decoded:
    """One whole frame, header included."""
    reader = frame_reader()
    reader.receive(frame)
    found = reader.next_frame()
    reader.finish()
    if found is None:
        raise MalformedRequest("no frame")
    message_type = found.header[0]
    message = decode(message_type, found.payload)
    return Decoded(MessageType(message_type), message)


def _decode_leniently(message: type[m.Message], payload: bytes | memoryview) -> m.Message:
    try:
        return msgspec.convert(_folder(message)(msgspec.json.decode(payload)), message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError: still the wrong shape after all leniency.
        raise MalformedRequest(f"payload of {message.__name__}: {error}") from error


# Any, here and below: JSON whose shape is what is being found out, and the annotations it should fit.
Fold = Callable[[Any], Any]


@cache
def _folder(kind: Any) -> Fold:
    """How a JSON value meant for `kind` is brought into the form that the strict decoder takes."""
    inner = [each for each in typing.get_args(kind) if each is not Ellipsis and each is not type(None)]
    if typing.get_origin(kind) is tuple:
        return _fold_list(_folder(inner[0]), zero={} if _is_message(inner[0]) else "")
    # What is left of `X | None` and of an annotated number is its first part.
    bare = inner[0] if inner else kind
    if _is_message(bare):
        return _fold_object({field.name: _folder(field.type) for field in msgspec.structs.fields(bare)})
    return _fold_base64 if bare is bytes else _unchanged


def _fold_object(fields: dict[str, Fold]) -> Fold:
    """Names in any case, unknown ones left out, and null for anything as if it were not there."""
    names = {name.lower(): name for name in fields}

    def fold(value: Any) -> Any:
        if value is None:
            return {}
        if not isinstance(value, dict):
            return value
        known = ((names.get(key.lower()), item) for key, item in value.items())
        return {name: fields[name](item) for name, item in known if name is not None and item is not None}

    return fold


def _fold_list(fold_item: Fold, *, zero: object) -> Fold:
    def fold(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [zero if item is None else fold_item(item) for item in value]

    return fold


def _fold_base64(value: Any) -> Any:
    """Go's Base64 reader passes over line ends."""
    return value.translate({10: None, 13: None}) if isinstance(value, str) else value


def _unchanged(value: Any) -> Any:
    return value


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, m.Message)
