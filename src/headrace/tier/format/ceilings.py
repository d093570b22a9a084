"""Ceilings of one broker's partitions, as a file in the bucket: the bound that a restore without the metastore needs.

    #headrace ceilings 1 <crc32c of the JSON, 8 hex digits>\\n
    {"broker_id": 1, "broker_epoch": 7, "created_ms": ..., "topics": {"<topic id>": [65536, null, 131072], ...}}

A whole picture each time; null, or a partition behind the end of its list, is one that the bucket knows nothing of.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import Corrupted
from headrace.records.batch import Buffer
from headrace.tier.format.headed import body_of, with_head

VERSION: Final = 1


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
    return with_head("ceilings", VERSION, body)


def decode_ceilings(data: Buffer) -> CeilingPicture:
    """Corrupted when the bytes are not a whole picture, NewerFormat when a newer headrace wrote it."""
    body = body_of(data, "ceilings", name="record of ceilings", version_max=VERSION)
    try:
        return msgspec.json.decode(body, type=CeilingPicture)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"a record of ceilings does not parse: {error}") from error
