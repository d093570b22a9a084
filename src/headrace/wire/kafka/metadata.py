"""Metadata responses, v0 to v13, put together from topic rows encoded before.

Every client asks for metadata again and again, and a topic of a thousand partitions takes a while to encode. A
topic's row changes only when the topic does, so `TopicRows` keeps encoded rows until the caller's revision moves.
Versions with equal rows share them. Requests are rare enough for the generated `MetadataRequest`.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.wire.kafka.messages.metadata_response import MetadataResponseBroker, MetadataResponseTopic
from headrace.wire.kafka.primitives import (
    write_compact_count,
    write_count,
    write_nullable_compact_string,
    write_nullable_string,
)

_FLEXIBLE_FROM: Final = 9
_SIZE: Final = struct.Struct(">i")
_FRAME_START: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")

_ROW_LAYOUT: Final = (0, 1, 1, 1, 1, 5, 5, 7, 8, 9, 10, 10, 12, 12)
"""By version, the oldest version whose topic rows have the same layout."""

UNKNOWN_OPERATIONS: Final = -(2**31)
"""What stands for "authorized operations were not asked for"."""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """What a response says about the cluster as seen from one listener; every leader must be among `brokers`."""

    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str
    controller_id: int
    authorized_operations: int = UNKNOWN_OPERATIONS


class TopicRows:
    """Encoded topic rows, by topic and layout.

    `revision` is any number the caller moves when something in the topic's row changes. Rows that depend on who
    asks (authorized operations) do not belong here; encode them with `encode_topic_row` each time.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[int, bytes]] = {}
        self._revisions: dict[bytes, int] = {}

    def find(self, topic_id: bytes, revision: int, version: int) -> bytes | None:
        if self._revisions.get(topic_id) != revision:
            return None
        return self._rows[topic_id].get(_ROW_LAYOUT[version])

    def add(self, topic_id: bytes, revision: int, version: int, topic: MetadataResponseTopic) -> bytes:
        """Encode and keep a row. Rows of another revision are dropped: at most eight layouts live per topic."""
        if self._revisions.get(topic_id) != revision:
            self._revisions[topic_id] = revision
            self._rows[topic_id] = {}
        row = encode_topic_row(version, topic)
        self._rows[topic_id][_ROW_LAYOUT[version]] = row
        return row

    def forget(self, topic_id: bytes) -> None:
        """Drop the rows of a deleted topic."""
        self._revisions.pop(topic_id, None)
        self._rows.pop(topic_id, None)


def encode_topic_row(version: int, topic: MetadataResponseTopic) -> bytes:
    out = bytearray()
    topic.write(out, version)
    return bytes(out)


def encode_metadata(
    version: int,
    correlation_id: int,
    cluster: ClusterView,
    topic_rows: Sequence[bytes],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
) -> bytes:
    """A whole response frame, size first. `topic_rows` must be of the same version."""
    is_flexible = version >= _FLEXIBLE_FROM
    write_length = write_compact_count if is_flexible else write_count
    head = bytearray(_FRAME_START.pack(0, correlation_id))
    if is_flexible:
        head.append(0)
    if version >= 3:
        head += _INT32.pack(throttle_ms)
    write_length(head, len(cluster.brokers))
    for broker in cluster.brokers:
        broker.write(head, version)
    if is_flexible:
        write_nullable_compact_string(head, cluster.cluster_id)
    elif version >= 2:
        write_nullable_string(head, cluster.cluster_id)
    if version >= 1:
        head += _INT32.pack(cluster.controller_id)
    write_length(head, len(topic_rows))
    tail = bytearray()
    if 8 <= version <= 10:
        tail += _INT32.pack(cluster.authorized_operations)
    if version >= 13:
        tail += _INT16.pack(error_code)
    if is_flexible:
        tail.append(0)
    size = len(head) + sum(map(len, topic_rows)) + len(tail)
    _SIZE.pack_into(head, 0, size - 4)
    return b"".join((head, *topic_rows, tail))
