"""The meta-info frame: who sent a message, when, as which number, and how its body is compressed.

    tag 2 | compression 1 | version 1 | device number 4 | created-ms 8 | sequence 8        network byte order

The protocol's grammar gives the device number two octets (22 in all); every program writes four (24). We read
both, told apart by length, and write 24.
"""

import struct
from typing import Final

from msgspec import Struct

from headrace.errors import MalformedRequest

TAG: Final = 0xCABD
TAG_SWAPPED: Final = 0xBDCA
"""Some agents write the tag in their own byte order; the rest of their frame is in network order."""
VERSION: Final = 1
SEQUENCE_MAX: Final = 2**64 - 1

_LONG: Final = struct.Struct(">HBBIQQ")
_SHORT: Final = struct.Struct(">HBBHQQ")


class Meta(Struct, frozen=True, kw_only=True, gc=False):
    compression: int = 0
    """The number on the wire; `compression.decompress` decides whether it knows it."""
    device_number: int = 0
    created_ms: int
    sequence: int


def encode_meta(meta: Meta) -> bytes:
    return _LONG.pack(TAG, meta.compression, VERSION, meta.device_number, meta.created_ms, meta.sequence)


def decode_meta(frame: bytes) -> Meta:
    """Raises `MalformedRequest` for a wrong length, tag or version."""
    if len(frame) == _LONG.size:
        layout = _LONG
    elif len(frame) == _SHORT.size:
        layout = _SHORT
    else:
        raise MalformedRequest(f"meta frame of {len(frame)} bytes, not {_LONG.size} or {_SHORT.size}")
    tag, compression, version, device_number, created_ms, sequence = layout.unpack(frame)
    if tag not in (TAG, TAG_SWAPPED):
        raise MalformedRequest(f"meta frame with tag {tag:#06x}")
    if version != VERSION:
        raise MalformedRequest(f"meta frame of version {version}")
    return Meta(compression=compression, device_number=device_number, created_ms=created_ms, sequence=sequence)
