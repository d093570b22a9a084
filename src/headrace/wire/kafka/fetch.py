"""Fetch, v4 to v18, by hand: records pass through untouched.

A response is a list of buffers to be written in order: headers that we pack, and between them the stored records as
they lie, never copied. Records are never null, on error partitions neither: librdkafka takes null for a broken
frame. Layouts: v5, v7, v9 and v11 add fields, v12 is flexible, v13 names topics by id, v15 moves the replica id
into a tagged field. `messages/fetch_*.py` reads and writes the same bytes, slower.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import MalformedRequest
from headrace.limits import PARTITIONS_PER_REQUEST_MAX
from headrace.records.batch import Piece
from headrace.wire.kafka.endpoints import LeaderHint, NodeEndpoint, encode_leader_hint, write_endpoint_tags
from headrace.wire.kafka.primitives import (
    READ_ERRORS,
    Buffer,
    read_compact_count,
    read_compact_string,
    read_count,
    read_int32s,
    read_string,
    read_tag,
    read_uvarint,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
    write_tags,
    write_uvarint,
)

FIRST_VERSION: Final = 4
LAST_VERSION: Final = 18
_SESSIONS_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
"""The version from which topics are named by id."""
_REPLICA_STATE_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16
_REPLICA_STATE_TAG: Final = 1

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class FetchPartition(msgspec.Struct, gc=False):
    """From where to read one partition. Epochs are -1 where the client does not know or its version cannot say."""

    index: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    bytes_max: int


class FetchTopic(msgspec.Struct, gc=False):
    """`topic` is a name up to v12, a topic id (16 bytes) from v13."""

    topic: str | bytes
    partitions: list[FetchPartition]


class ForgottenTopic(msgspec.Struct, gc=False):
    """Partitions to drop from the fetch session."""

    topic: str | bytes
    partitions: list[int]


class FetchCall(msgspec.Struct, gc=False):
    """A Fetch request. `replica_id` is -1 for consumers."""

    replica_id: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A producer whose records from `first_offset` on, up to its abort marker, must be skipped."""

    producer_id: int
    first_offset: int


class EpochEnd(msgspec.Struct, frozen=True, gc=False):
    """The largest epoch the client and we agree on, and where it ends."""

    epoch: int
    end_offset: int


class FetchedPartition(msgspec.Struct, gc=False):
    """What was read of one partition. `records` together have `records_size` bytes; `aborted` is None for
    read_uncommitted. `diverging` and `leader` are told from v12 on."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    records: Sequence[Piece] = ()
    records_size: int = 0
    aborted: Sequence[AbortedTransaction] | None = None
    preferred_replica: int = -1
    diverging: EpochEnd | None = None
    leader: LeaderHint | None = None


class FetchedTopic(msgspec.Struct, gc=False):
    """`topic` as the request named it."""

    topic: str | bytes
    partitions: list[FetchedPartition]


# Request


_HEAD_V4: Final = struct.Struct(">iiiib")
_HEAD_V7: Final = struct.Struct(">iiiibii")
_HEAD_V15: Final = struct.Struct(">iiibii")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")


def read_fetch(data: memoryview, at: int, version: int) -> FetchCall:
    """Read a request body that starts at `at`; `data` ends where the frame ends."""
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise MalformedRequest(f"Fetch v{version}: only v{FIRST_VERSION} to v{LAST_VERSION} are known")
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(data, at, version)
        return _read_legacy(data, at, version)
    except READ_ERRORS as error:
        raise MalformedRequest(f"Fetch v{version}: {error}") from error


def _read_flexible(data: memoryview, at: int, version: int) -> FetchCall:
    replica_id = -1
    if version >= _REPLICA_STATE_FROM:
        wait, low, high, isolation, session_id, session_epoch = _HEAD_V15.unpack_from(data, at)
        at += _HEAD_V15.size
    else:
        replica_id, wait, low, high, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(data, at)
        at += _HEAD_V7.size
    topics: list[FetchTopic] = []
    rows = 0
    count, at = read_compact_count(data, at)
    for _ in range(count):
        topic, at = _read_topic(data, at, version)
        partitions: list[FetchPartition] = []
        partition_count, at = read_compact_count(data, at)
        rows += partition_count
        if rows > PARTITIONS_PER_REQUEST_MAX:
            raise MalformedRequest(f"more than {PARTITIONS_PER_REQUEST_MAX} partitions")
        for _ in range(partition_count):
            index, epoch, offset, last_epoch, log_start, size = _PARTITION_V12.unpack_from(data, at)
            at += 32
            partitions.append(FetchPartition(index, epoch, offset, last_epoch, log_start, size))
            at = skip_tags(data, at) if data[at] else at + 1
        topics.append(FetchTopic(topic, partitions))
        at = skip_tags(data, at) if data[at] else at + 1
    forgotten: list[ForgottenTopic] = []
    count, at = read_compact_count(data, at)
    for _ in range(count):
        topic, at = _read_topic(data, at, version)
        index_count, at = read_compact_count(data, at)
        indexes, at = read_int32s(data, at, index_count)
        forgotten.append(ForgottenTopic(topic, indexes))
        at = skip_tags(data, at) if data[at] else at + 1
    rack_id, at = read_compact_string(data, at)
    if data[at]:
        replica_id = _read_replica_id(data, at, version, replica_id)
    return FetchCall(replica_id, wait, low, high, isolation, session_id, session_epoch, topics, forgotten, rack_id)


def _read_topic(data: memoryview, at: int, version: int) -> tuple[str | bytes, int]:
    if version < TOPIC_ID_FROM:
        return read_compact_string(data, at)
    end = at + 16
    if end > len(data):
        raise MalformedRequest(f"topic id in {len(data) - at} bytes")
    return bytes(data[at:end]), end


def _read_replica_id(data: memoryview, at: int, version: int, default: int) -> int:
    replica_id = default
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, body, at = read_tag(data, at)
        if tag == _REPLICA_STATE_TAG and version >= _REPLICA_STATE_FROM:
            (replica_id,) = _INT32.unpack_from(body)
    return replica_id


def _read_legacy(data: memoryview, at: int, version: int) -> FetchCall:
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        replica_id, wait, low, high, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(data, at)
        at += _HEAD_V7.size
    else:
        replica_id, wait, low, high, isolation = _HEAD_V4.unpack_from(data, at)
        at += _HEAD_V4.size
    topics: list[FetchTopic] = []
    rows = 0
    count, at = read_count(data, at)
    for _ in range(count):
        topic, at = read_string(data, at)
        partitions: list[FetchPartition] = []
        partition_count, at = read_count(data, at)
        rows += partition_count
        if rows > PARTITIONS_PER_REQUEST_MAX:
            raise MalformedRequest(f"more than {PARTITIONS_PER_REQUEST_MAX} partitions")
        for _ in range(partition_count):
            partition, at = _read_legacy_partition(data, at, version)
            partitions.append(partition)
        topics.append(FetchTopic(topic, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= _SESSIONS_FROM:
        count, at = read_count(data, at)
        for _ in range(count):
            topic, at = read_string(data, at)
            index_count, at = read_count(data, at)
            indexes, at = read_int32s(data, at, index_count)
            forgotten.append(ForgottenTopic(topic, indexes))
    rack_id = ""
    if version >= _PREFERRED_REPLICA_FROM:
        rack_id, at = read_string(data, at)
    return FetchCall(replica_id, wait, low, high, isolation, session_id, session_epoch, topics, forgotten, rack_id)


def _read_legacy_partition(data: memoryview, at: int, version: int) -> tuple[FetchPartition, int]:
    if version >= 9:
        index, epoch, offset, log_start, size = _PARTITION_V9.unpack_from(data, at)
        return FetchPartition(index, epoch, offset, -1, log_start, size), at + 28
    if version >= 5:
        index, offset, log_start, size = _PARTITION_V5.unpack_from(data, at)
        return FetchPartition(index, -1, offset, -1, log_start, size), at + 24
    index, offset, size = _PARTITION_V4.unpack_from(data, at)
    return FetchPartition(index, -1, offset, -1, -1, size), at + 16


# Response


_FRAME_START: Final = struct.Struct(">iii")
_ERROR_SESSION: Final = struct.Struct(">hi")
_FETCHED_V4: Final = struct.Struct(">ihqq")
_FETCHED_V5: Final = struct.Struct(">ihqqq")
_FETCHED_V4_PLAIN: Final = struct.Struct(">ihqqii")
_FETCHED_V5_PLAIN: Final = struct.Struct(">ihqqqii")
_FETCHED_V11_PLAIN: Final = struct.Struct(">ihqqqiii")
_FETCHED_V12_PLAIN: Final = struct.Struct(">ihqqqBi")
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_TAGGED: Final = struct.Struct(">qqB")
_EPOCH_END: Final = struct.Struct(">iqB")


def encode_fetched(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> list[Piece]:
    """A whole response frame, size first, as buffers to write in order. Empty records add no buffer."""
    is_flexible = version >= _FLEXIBLE_FROM
    first = bytearray(_FRAME_START.pack(0, correlation_id, throttle_ms))
    if is_flexible:
        first.insert(8, 0)
    if version >= _SESSIONS_FROM:
        first += _ERROR_SESSION.pack(error_code, session_id)
    write_length = write_compact_count if is_flexible else write_count
    write_length(first, len(topics))
    out = first
    parts: list[Piece] = [first]
    size = 0
    for topic in topics:
        if isinstance(topic.topic, bytes):
            out += topic.topic
        elif is_flexible:
            write_compact_string(out, topic.topic)
        else:
            write_string(out, topic.topic)
        write_length(out, len(topic.partitions))
        for partition in topic.partitions:
            if is_flexible:
                _write_flexible_partition(out, partition)
            else:
                _write_legacy_partition(out, partition, version)
            if partition.records_size:
                parts += partition.records
                size += len(out) + partition.records_size
                out = bytearray()
                parts.append(out)
            if is_flexible:
                _write_partition_tags(out, partition)
        if is_flexible:
            out.append(0)
    if is_flexible:
        write_endpoint_tags(out, endpoints if version >= _ENDPOINTS_FROM else ())
    if not out:
        parts.pop()
    _INT32.pack_into(first, 0, size + len(out) - 4)
    return parts


def _write_flexible_partition(out: bytearray, row: FetchedPartition) -> None:
    """Everything in front of the records, their length included."""
    if not row.aborted:
        out += _FETCHED_V12_PLAIN.pack(
            row.index,
            row.error_code,
            row.high_watermark,
            row.last_stable_offset,
            row.log_start,
            0 if row.aborted is None else 1,
            row.preferred_replica,
        )
    else:
        out += _FETCHED_V5.pack(row.index, row.error_code, row.high_watermark, row.last_stable_offset, row.log_start)
        write_compact_count(out, len(row.aborted))
        for aborted in row.aborted:
            out += _ABORTED_TAGGED.pack(aborted.producer_id, aborted.first_offset, 0)
        out += _INT32.pack(row.preferred_replica)
    write_uvarint(out, row.records_size + 1)


def _write_partition_tags(out: bytearray, row: FetchedPartition) -> None:
    if row.diverging is None and row.leader is None:
        out.append(0)
        return
    tags: list[tuple[int, Buffer]] = []
    if row.diverging is not None:
        tags.append((0, _EPOCH_END.pack(row.diverging.epoch, row.diverging.end_offset, 0)))
    if row.leader is not None:
        tags.append((1, encode_leader_hint(row.leader)))
    write_tags(out, tags)


def _write_legacy_partition(out: bytearray, row: FetchedPartition, version: int) -> None:
    """Everything in front of the records, their length included."""
    if row.aborted:
        _write_legacy_partition_with_aborted(out, row, version, row.aborted)
        return
    index, error_code, high_watermark, stable = row.index, row.error_code, row.high_watermark, row.last_stable_offset
    none_aborted = -1 if row.aborted is None else 0
    if version >= _PREFERRED_REPLICA_FROM:
        out += _FETCHED_V11_PLAIN.pack(
            index,
            error_code,
            high_watermark,
            stable,
            row.log_start,
            none_aborted,
            row.preferred_replica,
            row.records_size,
        )
    elif version >= 5:
        out += _FETCHED_V5_PLAIN.pack(
            index, error_code, high_watermark, stable, row.log_start, none_aborted, row.records_size
        )
    else:
        out += _FETCHED_V4_PLAIN.pack(index, error_code, high_watermark, stable, none_aborted, row.records_size)


def _write_legacy_partition_with_aborted(
    out: bytearray, row: FetchedPartition, version: int, aborted: Sequence[AbortedTransaction]
) -> None:
    out += _FETCHED_V4.pack(row.index, row.error_code, row.high_watermark, row.last_stable_offset)
    if version >= 5:
        out += _INT64.pack(row.log_start)
    write_count(out, len(aborted))
    for transaction in aborted:
        out += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
    if version >= _PREFERRED_REPLICA_FROM:
        out += _INT32.pack(row.preferred_replica)
    out += _INT32.pack(row.records_size)
