"""Metadata, v0-v13.

- Null topics means all (v1+), an empty list none; in v0 an empty list means all (trap 41).
- Unknown topics are created where client and door both allow it, else answered with an error each.
- By topic id (v12+): an unknown id is UNKNOWN_TOPIC_ID with a null name (trap 14). Where one topic has an id, ids are what is
  asked by, as in Kafka: Java's admin client sends an empty name with each, and names beside ids are passed over.
- Every leader named is among the brokers; the address is that of the listener asked (traps 38, 39). A broker that has left a cluster stays among
  them for 9 s, leading nothing.
"""

from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.broker.identity import NOBODY
from headrace.broker.topics import PartitionLog, Topic
from headrace.doors.connection import Blocked
from headrace.doors.kafka.auto_create import create_topic
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.rights import right
from headrace.doors.kafka.session import Session
from headrace.doors.slots import Slot
from headrace.errors import HeadraceError, TopicDenied
from headrace.ids import NO_TOPIC_ID
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import RequestHeader
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.metadata import UNKNOWN_OPERATIONS, ClusterView, encode_metadata, encode_topic_row

_BY_ID_FROM: Final = 12
_OPERATIONS_FROM: Final = 8
RIGHT: Final = right(
    (Operation.DESCRIBE, Resource.TOPIC),
    (Operation.CREATE, Resource.CLUSTER),
    (Operation.CREATE, Resource.TOPIC),
    (Operation.DESCRIBE, Resource.CLUSTER),
)


def handle(
    frame: memoryview, header: RequestHeader, slot: Slot, session: Session, resumed: str | None
) -> Blocked | None:
    request = MetadataRequest.decode(frame, header.api_version, header.body_at)
    asked = _asked(request, header.api_version)
    if asked is None or not _needs_creation(asked, request, session):
        _answer(request, asked, header, slot, session, {})
        return None
    session.door.tasks.spawn(_create_and_answer(request, asked, header, slot, session))
    return None


def _answer(
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    header: RequestHeader,
    slot: Slot,
    session: Session,
    failed: dict[str, HeadraceError],
) -> None:
    version = header.api_version
    with_operations = version >= _OPERATIONS_FROM and request.include_topic_authorized_operations
    rows = _rows(asked, version, session, failed, with_operations=with_operations)
    cluster = _cluster(session, with_operations=request.include_cluster_authorized_operations)
    slot.fill((encode_metadata(version, header.correlation_id, cluster, rows),))


async def _create_and_answer(
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    header: RequestHeader,
    slot: Slot,
    session: Session,
) -> None:
    failed: dict[str, HeadraceError] = {}
    for topic in asked:
        if topic.name and session.broker.topics.find(topic.name) is None and _may_describe(topic.name, session):
            is_allowed = session.guard.may_create_topic(topic.name)
            error = await create_topic(topic.name, session) if is_allowed else TopicDenied("not allowed to create it")
            if error is not None:
                failed[topic.name] = error
    _answer(request, asked, header, slot, session, failed)


def _may_describe(name: str, session: Session) -> bool:
    return session.guard.may(Operation.DESCRIBE, Resource.TOPIC, name)


def _asked(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """None for all topics."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    if version < _BY_ID_FROM:
        return request.topics
    by_id = [MetadataRequestTopic(topic_id=each.topic_id, name=None) for each in request.topics if any(each.topic_id)]
    return by_id or request.topics


def _needs_creation(asked: list[MetadataRequestTopic], request: MetadataRequest, session: Session) -> bool:
    if not (request.allow_auto_topic_creation and session.settings.auto_create_topics_enable):
        return False
    return any(topic.name and session.broker.topics.find(topic.name) is None for topic in asked)


def _rows(
    asked: list[MetadataRequestTopic] | None,
    version: int,
    session: Session,
    failed: dict[str, HeadraceError],
    *,
    with_operations: bool,
) -> list[bytes]:
    guard = session.guard
    if asked is None:
        return [
            _row(topic, version, session, with_operations=with_operations)
            for topic in session.broker.topics.all()
            if guard.sees(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        ]
    rows = []
    for wanted in asked:
        by_id = wanted.name is None
        topics = session.broker.topics
        topic = topics.find_by_id(wanted.topic_id) if by_id else topics.find(wanted.name or "")
        name = wanted.name if topic is None else topic.name
        if name is not None and guard.is_on and not _may_describe(name, session):
            # Whether there is such a topic has not been looked at where it was asked for by name.
            denied = MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                name=None if by_id else name,
                topic_id=wanted.topic_id if by_id else NO_TOPIC_ID,
            )
            rows.append(encode_topic_row(version, denied))
        elif topic is not None:
            rows.append(_row(topic, version, session, with_operations=with_operations))
        elif by_id:
            missing = MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if version >= 12 else "",
                topic_id=wanted.topic_id,
            )
            rows.append(encode_topic_row(version, missing))
        else:
            missing = _missing(wanted.name or "", failed)
            if with_operations and missing.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                missing.topic_authorized_operations = guard.operations(Resource.TOPIC, wanted.name or "")
            rows.append(encode_topic_row(version, missing))
    return rows


def _missing(name: str, failed: dict[str, HeadraceError]) -> MetadataResponseTopic:
    code = code_of(failed[name]) if name in failed else missing_code(name)
    return MetadataResponseTopic(error_code=code, name=name, topic_id=NO_TOPIC_ID)


def _row(topic: Topic, version: int, session: Session, *, with_operations: bool) -> bytes:
    if with_operations:
        described = _described(topic, session)
        described.topic_authorized_operations = session.guard.operations(Resource.TOPIC, topic.name)
        return encode_topic_row(version, described)
    rows = session.door.topic_rows
    found = rows.find(topic.id, topic.revision, version)
    return rows.add(topic.id, topic.revision, version, _described(topic, session)) if found is None else found


def _described(topic: Topic, session: Session) -> MetadataResponseTopic:
    number_of = session.broker.identity.number_of
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(partition, number_of(leader))
            for partition, leader in zip(topic.partitions, topic.leaders, strict=True)
        ],
    )


def _partition(partition: PartitionLog, leader: int) -> MetadataResponsePartition:
    """Nothing but the leader's bucket has the records: without it, no replica is there."""
    replicas = [leader] if leader != NOBODY else []
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


def _cluster(session: Session, *, with_operations: bool) -> ClusterView:
    identity = session.broker.identity
    return ClusterView(
        brokers=[MetadataResponseBroker(*each) for each in identity.members(session.listener, session.advertised)],
        cluster_id=identity.cluster_id,
        controller_id=identity.broker_id,
        authorized_operations=cluster_operations(session) if with_operations else UNKNOWN_OPERATIONS,
    )


def cluster_operations(session: Session) -> int:
    """What this client may do to the cluster; nothing is told to those who may not even describe it."""
    guard = session.guard
    return guard.operations(Resource.CLUSTER) if guard.sees(Operation.DESCRIBE, Resource.CLUSTER) else 0
