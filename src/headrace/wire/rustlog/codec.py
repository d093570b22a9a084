"""RustLog bytes to values and back.

Two kinds of badness are told apart, because the protocol treats them differently: `MalformedRequest` (not
UTF-8, not JSON, root not an object) ends the connection; `InvalidRequest` (unknown type, wrong field, bad
Base64) is answered, and the connection goes on.
"""

import struct
from typing import Final

import msgspec

from headrace.errors import Invalid, MalformedRequest, TooLarge
from headrace.wire.framing import FrameReader
from headrace.wire.rustlog.codes import FRAME_BYTES_MAX, FRAME_BYTES_MIN
from headrace.wire.rustlog.messages import Fetch, OffsetCommit, Request, Response

_LENGTH: Final = struct.Struct(">I")
_U64_MAX: Final = 2**64 - 1

_request_decoder: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_response_decoder: Final[msgspec.json.Decoder[Response]] = msgspec.json.Decoder(Response)
_encoder: Final = msgspec.json.Encoder()


class InvalidRequest(Invalid):
    """JSON that parses but is no request we know, or has a field out of its bounds."""


def frame_reader(frame_bytes_max: int = FRAME_BYTES_MAX) -> FrameReader:
    return FrameReader(_LENGTH, payload_bytes_max=frame_bytes_max, payload_bytes_min=FRAME_BYTES_MIN)


def encode(message: Request | Response) -> bytes:
    """One message as a frame, ready to be written."""
    return encode_frame(_encoder.encode(message))


def encode_frame(payload: bytes) -> bytes:
    """Any payload as a frame; refuses what `frame_reader` would refuse."""
    if not FRAME_BYTES_MIN <= len(payload) <= FRAME_BYTES_MAX:
        raise TooLarge(f"frame of {len(payload)} bytes, limits {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(payload)) + payload


def decode_request(payload: bytes | memoryview) -> Request:
    try:
        # The whole payload is checked as UTF-8 here: msgspec skips unknown fields without looking inside.
        request = _request_decoder.decode(str(payload, "utf-8"))
    except msgspec.ValidationError as error:
        _require_json_object(payload)
        raise InvalidRequest(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(_describe(error)) from error
    if isinstance(request, Fetch):
        _require_u64(request.offset, "offset")
        _require_u64(request.max_bytes, "max_bytes")
    elif isinstance(request, OffsetCommit):
        _require_u64(request.offset, "offset")
    return request


def decode_response(payload: bytes) -> Response:
    """What a client reads. A response type it does not know is malformed: there is no version to fall back to."""
    try:
        return _response_decoder.decode(str(payload, "utf-8"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(_describe(error)) from error


def _require_json_object(payload: bytes | memoryview) -> None:
    """msgspec reports the first wrong field at once; whether the rest is JSON at all decides what happens next."""
    try:
        root = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedRequest(_describe(error)) from error
    if not isinstance(root, dict):
        raise MalformedRequest(f"the root must be an object, not {type(root).__name__}")


def _require_u64(value: int, field: str) -> None:
    if value > _U64_MAX:
        raise InvalidRequest(f"`{field}` must fit 64 unsigned bits")


def _describe(error: Exception) -> str:
    match error:
        case UnicodeDecodeError():
            return f"payload is not UTF-8 at byte {error.start}"
        case RecursionError():
            return "JSON is nested too deeply"
        case _:
            return str(error)
