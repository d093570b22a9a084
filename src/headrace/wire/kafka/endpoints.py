"""Where a partition's leader is now: what Produce v10+ and Fetch v12+ responses tell a misdirected client (KIP-951).

The client then moves on without asking for metadata. Both live in tagged fields, so old clients skip them.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.wire.kafka.primitives import (
    Buffer,
    write_compact_count,
    write_compact_string,
    write_nullable_compact_string,
    write_tags,
)

_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">iiB")


class LeaderHint(msgspec.Struct, frozen=True, gc=False):
    """The broker that leads a partition, and since which epoch."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How to reach a broker that a hint names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_leader_hint(hint: LeaderHint) -> bytes:
    return _LEADER.pack(hint.leader_id, hint.leader_epoch, 0)


def write_endpoint_tags(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """The tagged fields that end a response: tag 0 is the endpoints, left out when there are none."""
    if not endpoints:
        out.append(0)
        return
    body = bytearray()
    write_compact_count(body, len(endpoints))
    for endpoint in endpoints:
        body += _INT32.pack(endpoint.node_id)
        write_compact_string(body, endpoint.host)
        body += _INT32.pack(endpoint.port)
        write_nullable_compact_string(body, endpoint.rack)
        body.append(0)
    tags: list[tuple[int, Buffer]] = [(0, body)]
    write_tags(out, tags)
