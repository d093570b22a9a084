"""Captured bytes, protocol by protocol, as what they say.

Each reader gives one `Seen` per frame, in order, and a last one with a `problem` where the bytes stop making sense.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from headrace.errors import HeadraceError
from headrace.records.batch import iterate_batches
from headrace.wire.framing import FrameReader
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.headers import has_tagged_response_header, read_request_header
from headrace.wire.kafka.messages import REQUESTS, RESPONSES
from headrace.wire.kafka.primitives import skip_tags
from headrace.wire.logjam.compression import Compression, decompress
from headrace.wire.logjam.messages import HEARTBEAT, open_envelope
from headrace.wire.logjam.meta import decode_meta
from headrace.wire.logjam.zmtp import Command, Greeting, Multipart, ZmtpReader
from headrace.wire.mlog import codec as mlog
from headrace.wire.mlog.codes import MessageType
from headrace.wire.rustlog import codec as rustlog
from headrace.wire.rustlog.codes import RequestCode, ResponseCode

KAFKA_FRAME_MAX: Final = 2**31 - 1
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_KAFKA_SIZE: Final = struct.Struct(">i")

Fields = dict[str, Any]  # Any: JSON of whatever the frame says


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One frame: where it stands, what it is, and what it says or why it cannot be read."""

    position: int
    size: int
    name: str
    code: str | None = None
    content: Any = None
    problem: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A Kafka request, as much as its response needs."""

    api_key: int
    version: int


def inspect_rustlog(data: bytes) -> Iterator[Seen]:
    return _frames(data, rustlog.frame_reader(), 4, _rustlog_frame)


def inspect_mlog(data: bytes) -> Iterator[Seen]:
    return _frames(data, mlog.frame_reader(), 6, _mlog_frame)


def inspect_kafka_requests(data: bytes, asked: dict[int, Asked]) -> Iterator[Seen]:
    """Notes in `asked` what each correlation id stands for, so that responses can be read."""

    def read(position: int, header: tuple[int, ...], payload: bytes) -> Seen:
        return _kafka_request(position, payload, asked)

    reader = FrameReader(_KAFKA_SIZE, payload_bytes_max=KAFKA_FRAME_MAX, payload_bytes_min=8)
    return _frames(data, reader, 4, read)


def inspect_kafka_responses(data: bytes, asked: dict[int, Asked]) -> Iterator[Seen]:
    def read(position: int, header: tuple[int, ...], payload: bytes) -> Seen:
        return _kafka_response(position, payload, asked)

    reader = FrameReader(_KAFKA_SIZE, payload_bytes_max=KAFKA_FRAME_MAX, payload_bytes_min=4)
    return _frames(data, reader, 4, read)


def inspect_logjam(data: bytes) -> Iterator[Seen]:
    reader = ZmtpReader()
    reader.receive(data)
    try:
        while True:
            start = reader.position
            item = reader.next_item()
            if item is None:
                break
            size = reader.position - start
            match item:
                case Greeting(version=version, mechanism=mechanism):
                    content = {"version": version, "mechanism": mechanism}
                    yield Seen(position=start, size=size, name="greeting", content=content)
                case Command(name=name, data=body):
                    yield Seen(position=start, size=size, name=f"command {name}", content=show(body))
                case Multipart(frames=frames):
                    yield _logjam_message(start, size, frames)
        reader.finish()
    except HeadraceError as error:
        rest = len(data) - reader.position
        yield Seen(position=reader.position, size=rest, name="unreadable", problem=str(error))


def _frames(data: bytes, reader: FrameReader, header_size: int, read: Any) -> Iterator[Seen]:
    """`read` takes position, header fields and payload; what it raises becomes the frame's problem."""
    reader.receive(data)
    position = 0
    try:
        while (frame := reader.next_frame()) is not None:
            size = header_size + len(frame.payload)
            try:
                yield read(position, frame.header, frame.payload)
            except HeadraceError as error:
                yield Seen(position=position, size=size, name="unreadable", problem=str(error))
            position += size
        reader.finish()
    except HeadraceError as error:
        yield Seen(position=position, size=len(data) - position, name="unreadable", problem=str(error))


def _rustlog_frame(position: int, header: tuple[int, ...], payload: bytes) -> Seen:
    try:
        root = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        return Seen(position=position, size=len(payload) + 4, name="unreadable", problem=str(error))
    name = str(root.pop("type", "?")) if isinstance(root, dict) else "?"
    code = RequestCode.__members__.get(name) or ResponseCode.__members__.get(name)
    problem = None
    try:
        decode = rustlog.decode_response if isinstance(code, ResponseCode) else rustlog.decode_request
        decode(payload)
    except HeadraceError as error:
        problem = str(error)
    return Seen(
        position=position,
        size=len(payload) + 4,
        name=name,
        code=None if code is None else f"{code:#04x}",
        content=root or None,
        problem=problem,
    )


def _mlog_frame(position: int, header: tuple[int, ...], payload: bytes) -> Seen:
    message = mlog.decode(header[0], payload)
    return Seen(
        position=position,
        size=len(payload) + 6,
        name=type(message).__name__,
        code=f"{MessageType(header[0])}",
        content=msgspec.to_builtins(message),
    )


def _kafka_request(position: int, payload: bytes, asked: dict[int, Asked]) -> Seen:
    view = memoryview(payload)
    header = read_request_header(view)
    asked[header.correlation_id] = Asked(header.api_key, header.api_version)
    content: Fields = {"correlation_id": header.correlation_id, "client_id": header.client_id}
    kind = REQUESTS.get(header.api_key)
    if kind is not None:
        content |= show(kind.decode(view, header.api_version, header.body_at))
    return Seen(
        position=position,
        size=len(payload) + 4,
        name=f"{_api_name(header.api_key)}Request v{header.api_version}",
        code=str(header.api_key),
        content=content,
        problem=None if kind is not None else "unknown API key",
    )


def _kafka_response(position: int, payload: bytes, asked: dict[int, Asked]) -> Seen:
    (correlation_id,) = _KAFKA_SIZE.unpack_from(payload)
    request = asked.get(correlation_id)
    content: Fields = {"correlation_id": correlation_id}
    if request is None or request.api_key not in RESPONSES:
        problem = "its request is not in the capture, so what it answers is unknown"
        return Seen(position=position, size=len(payload) + 4, name="response", content=content, problem=problem)
    view, at = memoryview(payload), 4
    if has_tagged_response_header(request.api_key, request.version):
        at = skip_tags(view, at)
    content |= show(RESPONSES[request.api_key].decode(view, request.version, at))
    return Seen(
        position=position,
        size=len(payload) + 4,
        name=f"{_api_name(request.api_key)}Response v{request.version}",
        code=str(request.api_key),
        content=content,
    )


def _api_name(api_key: int) -> str:
    return "".join(word.title() for word in ApiKey(api_key).name.split("_")) if api_key in set(ApiKey) else "?"


def _logjam_message(position: int, size: int, frames: list[bytes]) -> Seen:
    envelope = open_envelope(frames)
    parts = list(envelope.frames)
    if len(parts) != 4:
        # A reply, a subscription, or nonsense: shown as it is.
        return Seen(position=position, size=size, name="frames", content=[show(part) for part in frames])
    name = "ping" if envelope.is_ping else "heartbeat" if parts[0] == HEARTBEAT else "data"
    content: Fields = {"app_env": show(parts[0]), "topic": show(parts[1]), "wants_reply": envelope.wants_reply}
    problem = None
    try:
        meta = decode_meta(parts[3])
        content["meta"] = msgspec.to_builtins(meta)
        known = meta.compression in set(Compression)
        content["compression"] = Compression(meta.compression).name.lower() if known else str(meta.compression)
        content["body"] = show(decompress(meta.compression, parts[2], bytes_max=BODY_BYTES_MAX))
    except HeadraceError as error:
        problem = str(error)
        content["body"] = show(parts[2])
    return Seen(position=position, size=size, name=name, content=content, problem=problem)


# Any: turns whatever a message holds into what JSON can hold.
def show(value: Any) -> Any:
    """Structs as objects, record batches as what is in them, bytes as text where they are text, else as hex."""
    match value:
        case msgspec.Struct():
            return {name: show(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [show(item) for item in value]
        case memoryview():
            return _show_records(value)
        case bytes() | bytearray():
            return _show_bytes(bytes(value))
        case _:
            return value


def _show_records(view: memoryview) -> Any:
    try:
        return [
            {
                "base_offset": header.base_offset,
                "records": header.record_count,
                "bytes": header.size,
                "codec": header.codec,
                "base_timestamp_ms": header.base_timestamp_ms,
                "producer_id": header.producer_id,
                "is_transactional": header.is_transactional,
                "is_control": header.is_control,
            }
            for header, _ in iterate_batches(view)
        ]
    except HeadraceError:
        return _show_bytes(bytes(view))


def _show_bytes(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else "0x" + data.hex()
