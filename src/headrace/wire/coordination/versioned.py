"""Messages that carry their own version, an int16 in front.

So are the blobs that consumers exchange through JoinGroup and SyncGroup, and the keys and values of the
coordinators' internal topics, where the version of a key also says which kind of record it is.
"""

import struct
from typing import Final

from headrace.errors import MalformedRequest
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.primitives import Buffer

_VERSION: Final = struct.Struct(">h")
BODY_AT: Final = 2
"""Where the message starts: `Message.decode(data, read_version(data), BODY_AT)`."""


def encode_versioned(message: Message, version: int) -> bytes:
    out = bytearray(_VERSION.pack(version))
    message.encode(out, version)
    return bytes(out)


def read_version(data: Buffer) -> int:
    if len(data) < BODY_AT:
        raise MalformedRequest(f"no room for a version in {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version
