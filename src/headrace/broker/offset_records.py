"""The records of `__consumer_offsets`: Kafka's own keys and values, so that tools which read the topic understand it.

The version in front of a key says what kind of record it is. KIP-848 groups are kept whole, under a key version that
Kafka does not use: its eight record types per group are made for a coordinator that keeps no other state.
"""

from typing import Final, TypeAlias

import msgspec

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.consumer import events as consumer
from headrace.records.record import NewRecord, Record
from headrace.wire.coordination.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.coordination.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from headrace.wire.coordination.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.coordination.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.coordination.versioned import BODY_AT, encode_versioned, read_version

OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 4
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3
CONSUMER_GROUP_KEY_VERSION: Final = 1000
NO_TOPIC_ID: Final = bytes(16)
"""Of a topic that did not exist at the time, and in records from before they had an id."""

_consumer_encoder = msgspec.msgpack.Encoder()
_consumer_decoder = msgspec.msgpack.Decoder(consumer.GroupSnapshot)


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a group goes on reading a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0


class OffsetRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """None: forgotten."""

    group: str
    topic: str
    partition: int
    committed: CommittedOffset | None
    topic_id: bytes = NO_TOPIC_ID


class ClassicGroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    snapshot: classic.GroupSnapshot | None


class ConsumerGroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    snapshot: consumer.GroupSnapshot | None


GroupRecord: TypeAlias = ClassicGroupRecord | ConsumerGroupRecord


def encode_offset(
    group: str, topic: str, partition: int, committed: CommittedOffset | None, *, topic_id: bytes = NO_TOPIC_ID
) -> NewRecord:
    key = encode_versioned(OffsetCommitKey(group, topic, partition), OFFSET_KEY_VERSION)
    if committed is None:
        return NewRecord(key=key, value=None)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        topic_id=topic_id,
    )
    return NewRecord(key=key, value=encode_versioned(value, OFFSET_VALUE_VERSION))


def encode_classic_group(group: str, snapshot: classic.GroupSnapshot | None) -> NewRecord:
    key = encode_versioned(GroupMetadataKey(group), GROUP_KEY_VERSION)
    if snapshot is None:
        return NewRecord(key=key, value=None)
    value = GroupMetadataValue(
        protocol_type=snapshot.protocol_type or "",
        generation=snapshot.generation,
        protocol=snapshot.protocol_name,
        leader=snapshot.leader_id,
        current_state_timestamp=snapshot.since_ms,
        members=[
            MemberMetadata(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout=each.rebalance_timeout_ms,
                session_timeout=each.session_timeout_ms,
                subscription=each.subscription,
                assignment=each.assignment,
            )
            for each in snapshot.members
        ],
    )
    return NewRecord(key=key, value=encode_versioned(value, GROUP_VALUE_VERSION))


def encode_consumer_group(group: str, snapshot: consumer.GroupSnapshot | None) -> NewRecord:
    key = CONSUMER_GROUP_KEY_VERSION.to_bytes(2, "big") + group.encode()
    return NewRecord(key=key, value=None if snapshot is None else _consumer_encoder.encode(snapshot))


def is_offset_key(key: bytes) -> bool:
    """Whether a record with this key is a commit, or takes one back."""
    return len(key) >= BODY_AT and int.from_bytes(key[:BODY_AT], "big", signed=True) <= OFFSET_KEY_VERSION


def decode(record: Record) -> OffsetRecord | GroupRecord | None:
    """None for kinds we do not know, which another version may have written."""
    key = record.key or b""
    version = read_version(key)
    if version <= OFFSET_KEY_VERSION:
        return _decode_offset(key, version, record.value)
    if version == GROUP_KEY_VERSION:
        group = GroupMetadataKey.decode(key, version, BODY_AT).group
        return ClassicGroupRecord(group=group, snapshot=_decode_classic(record.value))
    if version == CONSUMER_GROUP_KEY_VERSION:
        snapshot = None if record.value is None else _consumer_decoder.decode(record.value)
        return ConsumerGroupRecord(group=key[BODY_AT:].decode(), snapshot=snapshot)
    return None


def _decode_offset(key: bytes, version: int, value: bytes | None) -> OffsetRecord:
    where = OffsetCommitKey.decode(key, version, BODY_AT)
    committed, topic_id = None, NO_TOPIC_ID
    if value is not None:
        stored = OffsetCommitValue.decode(value, read_version(value), BODY_AT)
        committed = CommittedOffset(
            offset=stored.offset,
            leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            commit_ms=stored.commit_timestamp,
        )
        topic_id = stored.topic_id
    return OffsetRecord(
        group=where.group, topic=where.topic, partition=where.partition, committed=committed, topic_id=topic_id
    )


def _decode_classic(value: bytes | None) -> classic.GroupSnapshot | None:
    if value is None:
        return None
    stored = GroupMetadataValue.decode(value, read_version(value), BODY_AT)
    return classic.GroupSnapshot(
        protocol_type=stored.protocol_type or None,
        generation=stored.generation,
        protocol_name=stored.protocol,
        leader_id=stored.leader,
        since_ms=stored.current_state_timestamp,
        members=tuple(
            classic.MemberSnapshot(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout,
                session_timeout_ms=each.session_timeout,
                subscription=bytes(each.subscription),
                assignment=bytes(each.assignment),
            )
            for each in stored.members
        ),
    )
