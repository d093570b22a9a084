"""Life files: which life of the cluster writes to the bucket. Exactly one life can create each.

    #headrace life 1 <crc32c of the JSON, 8 hex digits>\\n
    {"life": "5f0c...", "cluster_id": ..., "broker_id": ..., "broker_epoch": 7, "host": ..., "started_ms": ...}

A life is what one process does between its start and its end. Life files are numbered without gaps and written create-only.
"""

from typing import Final

import msgspec

from headrace.errors import Corrupted
from headrace.records.batch import Buffer
from headrace.tier.format.headed import body_of, with_head

VERSION: Final = 1


class Life(msgspec.Struct, frozen=True, kw_only=True):
    life: str
    """Sixteen random hex digits; also in the names of the data objects that it writes."""
    cluster_id: str
    broker_id: str
    broker_epoch: int
    host: str
    started_ms: int


def encode_life(life: Life) -> bytes:
    body = msgspec.json.encode(life)
    return with_head("life", VERSION, body)


def decode_life(data: Buffer) -> Life:
    body = body_of(data, "life", name="life file", version_max=VERSION)
    try:
        return msgspec.json.decode(body, type=Life)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"life file does not parse: {error}") from error
