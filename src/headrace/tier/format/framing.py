"""The end of every binary file in the bucket: footer, then a tail of fixed size that says how to read it.

    body | footer | tail
    tail = footer length u32 | item count u32 | version u16 | kind u16 | CRC-32C u32 | magic 8 bytes

All integers are big-endian. The CRC covers the footer and the tail's fields before it, so a footer cannot be
read with the wrong length, count, version or kind. The body is covered piece by piece by CRCs in the footer.
A reader that knows the file's size gets the tail with one range read, and usually the footer with it.
"""

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted, NewerFormat
from headrace.records.batch import Buffer

MAGIC_LENGTH: Final = 8
_FIELDS: Final = struct.Struct(">IIHH")
_TAIL: Final = struct.Struct(">IIHHI8s")
TAIL_SIZE: Final = _TAIL.size


class Tail(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    footer_length: int
    item_count: int
    version: int
    kind: int
    crc: int

    @property
    def footer_size(self) -> int:
        """Footer and tail together: what to ask for at the end of the file."""
        return self.footer_length + TAIL_SIZE


def seal(footer: bytes, *, item_count: int, version: int, kind: int, magic: bytes) -> bytes:
    """Footer and tail, ready to follow a body."""
    assert len(magic) == MAGIC_LENGTH
    fields = _FIELDS.pack(len(footer), item_count, version, kind)
    crc = crc32c(fields, crc32c(footer))
    return footer + _TAIL.pack(len(footer), item_count, version, kind, crc, magic)


def parse_tail(end_of_file: Buffer, *, magic: bytes) -> Tail:
    """The tail in the last bytes of a file. Says clearly what is wrong with anything else."""
    if len(end_of_file) < TAIL_SIZE:
        raise Corrupted(f"{len(end_of_file)} bytes where a tail of {TAIL_SIZE} belongs")
    footer_length, item_count, version, kind, crc, found = _TAIL.unpack_from(end_of_file, len(end_of_file) - TAIL_SIZE)
    if found != magic:
        raise Corrupted(f"magic {found!r} where {magic!r} belongs")
    return Tail(footer_length=footer_length, item_count=item_count, version=version, kind=kind, crc=crc)


def open_footer(end_of_file: Buffer, tail: Tail, *, version_max: int) -> memoryview:
    """The checked footer; `end_of_file` must hold at least `tail.footer_size` bytes.

    A newer version is believed only where the CRC, which covers it, holds: a flipped bit is damage and no reason to stop. So tail
    and CRC stay what they are in every version.
    """
    if len(end_of_file) < tail.footer_size:
        raise Corrupted(f"footer of {tail.footer_length} bytes is cut short")
    start = len(end_of_file) - tail.footer_size
    footer = memoryview(end_of_file)[start : start + tail.footer_length]
    fields = _FIELDS.pack(tail.footer_length, tail.item_count, tail.version, tail.kind)
    if crc32c(fields, crc32c(footer)) != tail.crc:
        raise Corrupted("footer does not match its CRC")
    if tail.version > version_max:
        kind = bytes(memoryview(end_of_file)[-MAGIC_LENGTH:]).decode()
        raise NewerFormat(f"{kind} version {tail.version}; this headrace reads up to {version_max}")
    return footer
