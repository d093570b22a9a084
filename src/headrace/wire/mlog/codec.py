"""mlog bytes to values and back: `MESSAGES` is the whole protocol, read in both directions.

Payloads written the way Go writes them take the fast path. Whatever that refuses is read a second time with
Go's leniency: names in any case, unknown fields dropped, null for anything meaning its zero value.
"""

import struct
import typing
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import MalformedRequest, TooLarge
from headrace.wire.framing import FrameReader
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.catalogue import FRAME_BYTES_MAX, MessageType

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
        return msgspec.convert(_fold(msgspec.json.decode(payload), message), message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # ValidationError is a DecodeError: still the wrong shape after all leniency.
        raise MalformedRequest(f"payload of {message.__name__}: {error}") from error


# Any: this walks JSON whose shape is what is being found out.
def _fold(value: Any, expected: Any) -> Any:
    """`value` with its keys spelled as `expected` spells them, and what Go would ignore left out."""
    if value is None:
        return {} if _is_message(expected) else None
    if isinstance(value, dict) and _is_message(expected):
        return _fold_object(value, expected)
    if isinstance(value, list):
        (element,) = [a for a in typing.get_args(expected) if a is not Ellipsis] or [None]
        return [_fold_element(item, element) for item in value]
    return value


def _fold_object(value: dict[str, Any], expected: type[m.Message]) -> dict[str, Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(expected)}
    by_lower = {name.lower(): name for name in fields}
    folded: dict[str, Any] = {}
    for key, item in value.items():
        name = key if key in fields else by_lower.get(key.lower())
        if name is None or item is None:
            continue
        # An optional struct (FetchResponse.Entry) is folded as the struct.
        kind = next((a for a in typing.get_args(fields[name]) if _is_message(a)), fields[name])
        is_sequence = typing.get_origin(fields[name]) is tuple
        item = _fold(item, fields[name] if is_sequence else kind)
        folded[name] = _without_newlines(item) if kind in (bytes, bytes | None) else item
    return folded


def _fold_element(item: Any, expected: Any) -> Any:
    if expected is bytes:
        return "" if item is None else _without_newlines(item)
    return _fold(item, expected)


def _without_newlines(item: Any) -> Any:
    """Go's Base64 reader passes over line ends."""
    return item.translate({10: None, 13: None}) if isinstance(item, str) else item


def _is_message(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, m.Message)
