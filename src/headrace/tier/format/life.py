"""Life files: which life of the cluster writes to the bucket. Exactly one life can create each.

    #headrace life 1 <crc32c of the JSON, 8 hex digits>\\n
    {"life": "5f0c...", "cluster_id": ..., "broker_id": ..., "broker_epoch": 7, "host": ..., "started_ms": ...}

A life is what one process does between its start and its end. Life files are numbered without gaps and written create-only.
"""

from typing import Final

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted, NewerFormat
from headrace.records.batch import Buffer

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
    return f"#headrace life {VERSION} {crc32c(body):08x}\n".encode() + body + b"\n"


def decode_life(data: Buffer) -> Life:
    head, newline, body = bytes(data).partition(b"\n")
    words = head.decode("ascii", "replace").split(" ")
    if not newline or words[:2] != ["#headrace", "life"] or len(words) != 4 or not words[2].isdigit():
        raise Corrupted("not a life file")
    if int(words[2]) > VERSION:
        raise NewerFormat(f"life file version {words[2]}; this headrace reads up to {VERSION}")
    body = body.removesuffix(b"\n")
    if f"{crc32c(body):08x}" != words[3]:
        raise Corrupted("life file does not match its CRC")
    try:
        return msgspec.json.decode(body, type=Life)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"life file does not parse: {error}") from error
