"""Ceilings of one broker's partitions, as a file in the bucket: the bound that a restore without the metastore needs.

    #headrace ceilings 1 <crc32c of the JSON, 8 hex digits>\\n
    {"broker_id": 1, "broker_epoch": 7, "created_ms": ..., "topics": {"<topic id>": [65536, null, 131072], ...}}

A whole picture each time; null, or a partition behind the end of its list, is one that the bucket knows nothing of.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted, NewerFormat
from headrace.records.batch import Buffer

VERSION: Final = 1
_MARK: Final = "#headrace"


class CeilingPicture(msgspec.Struct, frozen=True, kw_only=True):
    broker_id: int
    broker_epoch: int
    created_ms: int
    topics: dict[str, list[int | None]]
    """By topic id; the place in the list is the partition."""

    def ceiling(self, topic_id: str, partition: int) -> int | None:
        known: Sequence[int | None] = self.topics.get(topic_id, ())
        return known[partition] if partition < len(known) else None


def encode_ceilings(picture: CeilingPicture) -> bytes:
    body = msgspec.json.encode(picture, order="deterministic")
    return f"{_MARK} ceilings {VERSION} {crc32c(body):08x}\n".encode() + body + b"\n"


def decode_ceilings(data: Buffer) -> CeilingPicture:
    """Corrupted when the bytes are not a whole picture, NewerFormat when a newer headrace wrote it."""
    head, newline, body = bytes(data).partition(b"\n")
    words = head.decode("ascii", "replace").split(" ")
    if not newline or words[:2] != [_MARK, "ceilings"] or len(words) != 4 or not words[2].isdigit():
        raise Corrupted(f"not a record of ceilings: begins with {bytes(data[:32])!r}")
    if int(words[2]) > VERSION:
        raise NewerFormat(f"record of ceilings version {words[2]}; this headrace reads up to {VERSION}")
    body = body.removesuffix(b"\n")
    if f"{crc32c(body):08x}" != words[3]:
        raise Corrupted("a record of ceilings does not match its CRC")
    try:
        return msgspec.json.decode(body, type=CeilingPicture)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"a record of ceilings does not parse: {error}") from error
