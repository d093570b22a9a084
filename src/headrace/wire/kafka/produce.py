"""Produce, v3 to v13, by hand: the hottest thing in the product.

The request is read in place. `records` are slices of the frame: whoever keeps them past the frame copies them.
Null records are given as empty ones. The layout differs at three places only: v9 is flexible, v13 names topics by
id, and responses grow at v5, v8 and v10. `messages/produce_*.py` reads and writes the same bytes, slower.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import MalformedRequest
from headrace.limits import PARTITIONS_PER_REQUEST_MAX
from headrace.wire.kafka.endpoints import LeaderHint, NodeEndpoint, encode_leader_hint, write_endpoint_tags
from headrace.wire.kafka.primitives import (
    READ_ERRORS,
    read_compact_count,
    read_compact_string,
    read_count,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_nullable_compact_string,
    write_nullable_string,
    write_string,
    write_tags,
)

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 13
_FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hiB")
_INDEX_SIZE: Final = struct.Struct(">ii")
_INDEX_COMPACT_SIZE: Final = struct.Struct(">iB")


class PartitionRecords(msgspec.Struct, gc=False):
    """What a client wants appended to one partition."""

    index: int
    records: memoryview


class TopicRecords(msgspec.Struct, gc=False):
    """`topic` is a name up to v12, a topic id (16 bytes) from v13."""

    topic: str | bytes
    partitions: list[PartitionRecords]


class ProduceCall(msgspec.Struct, gc=False):
    """A Produce request as it lies in its frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class ProducedPartition(msgspec.Struct, gc=False):
    """How an append to one partition went. `append_time_ms` is -1 unless the topic uses LogAppendTime."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader: LeaderHint | None = None


class ProducedTopic(msgspec.Struct, gc=False):
    """`topic` as the request named it."""

    topic: str | bytes
    partitions: list[ProducedPartition]


def read_produce(data: memoryview, at: int, version: int) -> ProduceCall:
    """Read a request body that starts at `at`; `data` ends where the frame ends."""
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise MalformedRequest(f"Produce v{version}: only v{FIRST_VERSION} to v{LAST_VERSION} are known")
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(data, at, version)
        return _read_legacy(data, at)
    except READ_ERRORS as error:
        raise MalformedRequest(f"Produce v{version}: {error}") from error


def _read_flexible(data: memoryview, at: int, version: int) -> ProduceCall:
    # Lengths below 127 take one byte, and nearly all do: that case is spelled out, the rest is called. Records
    # mostly have two bytes of length: (low & 0x7F) | high << 7, and low has its eighth bit set.
    end_of_data = len(data)
    transactional_id: str | None = None
    if data[at]:
        transactional_id, at = read_nullable_compact_string(data, at)
    else:
        at += 1
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(data, at)
    at += 7
    if 0 < count < 0x80:
        count -= 1
    else:
        count, at = read_compact_count(data, at - 1)
    topics: list[TopicRecords] = []
    rows = 0
    for _ in range(count):
        topic: str | bytes
        if version >= TOPIC_ID_FROM:
            topic = bytes(data[at : at + 16])
            at += 16
        else:
            size = data[at]
            if 0 < size < 0x80 and at + size <= end_of_data:
                topic = str(data[at + 1 : at + size], "utf-8")
                at += size
            else:
                topic, at = read_compact_string(data, at)
        partition_count = data[at]
        if 0 < partition_count < 0x80:
            partition_count -= 1
            at += 1
        else:
            partition_count, at = read_compact_count(data, at)
        rows += partition_count
        if rows > PARTITIONS_PER_REQUEST_MAX:
            raise MalformedRequest(f"more than {PARTITIONS_PER_REQUEST_MAX} partitions")
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, size = _INDEX_COMPACT_SIZE.unpack_from(data, at)
            at += 5
            if size > 0x7F:
                high = data[at]
                if high < 0x80:
                    size += (high - 1) << 7
                    at += 1
                else:
                    size, at = read_uvarint(data, at - 1)
            end = at + size - 1 if size else at
            if end > end_of_data:
                raise MalformedRequest(f"records of {size - 1} bytes in {end_of_data - at}")
            partitions.append(PartitionRecords(index, data[at:end]))
            at = skip_tags(data, end) if data[end] else end + 1
        topics.append(TopicRecords(topic, partitions))
        at = skip_tags(data, at) if data[at] else at + 1
    if data[at]:
        skip_tags(data, at)
    return ProduceCall(transactional_id, acks, timeout_ms, topics)


def _read_legacy(data: memoryview, at: int) -> ProduceCall:
    end_of_data = len(data)
    transactional_id, at = read_nullable_string(data, at)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, at)
    count, at = read_count(data, at + 6)
    topics: list[TopicRecords] = []
    rows = 0
    for _ in range(count):
        topic, at = read_string(data, at)
        partition_count, at = read_count(data, at)
        rows += partition_count
        if rows > PARTITIONS_PER_REQUEST_MAX:
            raise MalformedRequest(f"more than {PARTITIONS_PER_REQUEST_MAX} partitions")
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(data, at)
            at += 8
            end = at + size if size != -1 else at
            if not at <= end <= end_of_data:
                raise MalformedRequest(f"records of {size} bytes in {end_of_data - at}")
            partitions.append(PartitionRecords(index, data[at:end]))
            at = end
        topics.append(TopicRecords(topic, partitions))
    return ProduceCall(transactional_id, acks, timeout_ms, topics)


_SIZE: Final = struct.Struct(">i")
_FRAME_START: Final = struct.Struct(">ii")
_THROTTLE: Final = struct.Struct(">i")
_PARTITION_V3: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_PARTITION_V8_PLAIN: Final = struct.Struct(">ihqqqih")
_PARTITION_V9_PLAIN: Final = struct.Struct(">ihqqqBBB")


def encode_produced(
    version: int,
    correlation_id: int,
    topics: Sequence[ProducedTopic],
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytearray:
    """A whole response frame, size first. `endpoints` say where hinted leaders are (v10+)."""
    is_flexible = version >= _FLEXIBLE_FROM
    out = bytearray(_FRAME_START.pack(0, correlation_id))
    if is_flexible:
        out.append(0)
        write_compact_count(out, len(topics))
    else:
        write_count(out, len(topics))
    for topic in topics:
        if isinstance(topic.topic, bytes):
            out += topic.topic
        elif is_flexible:
            write_compact_string(out, topic.topic)
        else:
            write_string(out, topic.topic)
        if is_flexible:
            write_compact_count(out, len(topic.partitions))
            for partition in topic.partitions:
                _write_flexible_partition(out, partition, version)
            out.append(0)
        else:
            write_count(out, len(topic.partitions))
            for partition in topic.partitions:
                _write_legacy_partition(out, partition, version)
    out += _THROTTLE.pack(throttle_ms)
    if is_flexible:
        write_endpoint_tags(out, endpoints if version >= 10 else ())
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def encode_produced_partition(version: int, row: ProducedPartition) -> bytes:
    """One row of the response, as `encode_produced` writes it."""
    out = bytearray()
    (_write_flexible_partition if version >= _FLEXIBLE_FROM else _write_legacy_partition)(out, row, version)
    return bytes(out)


def _write_flexible_partition(out: bytearray, row: ProducedPartition, version: int) -> None:
    if row.error_code == 0 and not row.record_errors and row.error_message is None and row.leader is None:
        # One call for what success always looks like: no record errors, no message, no tags.
        out += _PARTITION_V9_PLAIN.pack(row.index, 0, row.base_offset, row.append_time_ms, row.log_start, 1, 0, 0)
        return
    out += _PARTITION_V5.pack(row.index, row.error_code, row.base_offset, row.append_time_ms, row.log_start)
    write_compact_count(out, len(row.record_errors))
    for batch_index, message in row.record_errors:
        out += _SIZE.pack(batch_index)
        write_nullable_compact_string(out, message)
        out.append(0)
    write_nullable_compact_string(out, row.error_message)
    if row.leader is not None and version >= 10:
        write_tags(out, [(0, encode_leader_hint(row.leader))])
    else:
        out.append(0)


def _write_legacy_partition(out: bytearray, row: ProducedPartition, version: int) -> None:
    if version < 5:
        out += _PARTITION_V3.pack(row.index, row.error_code, row.base_offset, row.append_time_ms)
        return
    numbers = (row.index, row.error_code, row.base_offset, row.append_time_ms, row.log_start)
    if version < 8:
        out += _PARTITION_V5.pack(*numbers)
        return
    if not row.record_errors and row.error_message is None:
        out += _PARTITION_V8_PLAIN.pack(*numbers, 0, -1)
        return
    out += _PARTITION_V5.pack(*numbers)
    write_count(out, len(row.record_errors))
    for batch_index, message in row.record_errors:
        out += _SIZE.pack(batch_index)
        write_nullable_string(out, message)
    write_nullable_string(out, row.error_message)
