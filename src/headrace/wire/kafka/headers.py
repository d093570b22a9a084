"""What stands in front of every request and response body.

A frame is an int32 size, which does not count itself, then a header, then a body.

- Request header v1: api key, api version, correlation id, client id. v2, for flexible versions, appends tagged
  fields; the client id stays a legacy string even there.
- Response header v0: the correlation id. v1, for flexible versions, appends tagged fields. ApiVersions always
  answers with v0, because the client does not know yet what we speak (KIP-511).

This module does not know which APIs a node serves: an unknown key is parsed as far as all headers agree.
"""

import struct
from typing import Final

import msgspec

from headrace.errors import MalformedRequest
from headrace.wire.kafka.api_keys import FLEXIBLE_FROM, NEVER, ApiKey
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.primitives import READ_ERRORS, skip_tags, write_nullable_string

_REQUEST: Final = struct.Struct(">hhih")
_SIZE_AND_ID: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")


class RequestHeader(msgspec.Struct, gc=False):
    """Who asks for what. `body_at` is where the body starts in the data the header was read from."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_request_header(data: memoryview, at: int = 0) -> RequestHeader:
    """Read the header that starts at `at`, right behind the frame's size. `data` ends where the frame ends."""
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(data, at)
        at += 10
        client_id = None
        if size >= 0:
            end = at + size
            if end > len(data):
                raise MalformedRequest(f"client id of {size} bytes in {len(data) - at}")
            client_id = str(data[at:end], "utf-8")
            at = end
        elif size != -1:
            raise MalformedRequest(f"client id of {size} bytes")
        if api_version >= FLEXIBLE_FROM.get(api_key, NEVER):
            at = skip_tags(data, at) if data[at] else at + 1
    except READ_ERRORS as error:
        raise MalformedRequest(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def read_routing(data: memoryview, at: int = 0) -> RequestHeader:
    """Read only what every header version starts with; enough to answer a request whose version we do not know."""
    try:
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", data, at)
    except READ_ERRORS as error:
        raise MalformedRequest(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, None, at + 8)


def has_tagged_response_header(api_key: int, version: int) -> bool:
    """Whether a tagged-fields byte follows the correlation id of a response."""
    return version >= FLEXIBLE_FROM.get(api_key, NEVER) and api_key != ApiKey.API_VERSIONS


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """A whole response frame, size first."""
    out = bytearray(_SIZE_AND_ID.pack(0, correlation_id))
    if has_tagged_response_header(response.API_KEY, version):
        out.append(0)
    response.encode(out, version)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A whole request frame, size first."""
    out = bytearray(struct.pack(">ihhi", 0, request.API_KEY, version, correlation_id))
    write_nullable_string(out, client_id)
    if version >= FLEXIBLE_FROM.get(request.API_KEY, NEVER):
        out.append(0)
    request.encode(out, version)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def read_response_header(data: memoryview, api_key: int, version: int, at: int = 0) -> tuple[int, int]:
    """The correlation id of a response and where its body starts; `at` is right behind the frame's size."""
    try:
        (correlation_id,) = _SIZE.unpack_from(data, at)
        at += 4
        if has_tagged_response_header(api_key, version):
            at = skip_tags(data, at)
    except READ_ERRORS as error:
        raise MalformedRequest(f"response header: {error}") from error
    return correlation_id, at
