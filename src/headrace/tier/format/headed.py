"""Text files of the bucket that begin with a line about themselves: what they are, in which version, and a CRC.

    #headrace <kind> <version> <crc32c, 8 hex digits>\\n
    <body>

In version 1 the CRC is that of the body. In every later version it covers the words in front of it as well. So a flipped bit that makes
another version of a 1 is damage, which is read again or mended, and not a newer headrace's file, which stops a node.
"""

from typing import Final

from crc32c import crc32c

from headrace.errors import Corrupted, NewerFormat
from headrace.records.batch import Buffer

_MARK: Final = "#headrace"


def with_head(kind: str, version: int, body: bytes, *, end: bytes = b"\n") -> bytes:
    """The file; `end` follows the body and is not covered."""
    words = f"{_MARK} {kind} {version} "
    return f"{words}{_crc(words, version, body):08x}\n".encode() + body + end


def body_of(data: Buffer, kind: str, *, name: str, version_max: int, end: bytes = b"\n") -> bytes:
    """The checked body. `Corrupted` when it is not a whole file of that kind, `NewerFormat` when a newer headrace wrote it."""
    head, newline, body = bytes(data).partition(b"\n")
    words = head.decode("ascii", "replace").split(" ")
    is_known = bool(newline) and words[:2] == [_MARK, kind] and len(words) == 4
    # As it is written, and in digits that `int` and everybody else agree on.
    if not is_known or not (words[2].isascii() and words[2].isdigit()) or words[2].startswith("0"):
        raise Corrupted(f"not a {name}: begins with {bytes(data[:32])!r}")
    version = int(words[2])
    body = body.removesuffix(end)
    if f"{_crc(f'{_MARK} {kind} {version} ', version, body):08x}" != words[3]:
        raise Corrupted(f"the {name} does not match its CRC")
    if version > version_max:
        raise NewerFormat(f"{name} version {version}; this headrace reads up to {version_max}")
    return body


def _crc(words: str, version: int, body: bytes) -> int:
    covered = 0 if version == 1 else crc32c(words.encode())
    return int(crc32c(body, covered))
