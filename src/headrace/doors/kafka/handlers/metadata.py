"""Metadata, v0-v13.

- Null topics means all (v1+), an empty list none; in v0 an empty list means all (trap 41).
- Unknown topics are created where client and door both allow it, else answered with an error each.
- By topic id (v12+): an unknown id is UNKNOWN_TOPIC_ID with a null name (trap 14). Where one topic has an id, ids are what is
  asked by, as in Kafka: Java's admin client sends an empty name with each, and names beside ids are passed over.
- Every leader named is among the brokers; the address is that of the listener asked (traps 38, 39).
"""

from typing import Final

from headrace.broker.topics import Topic
from headrace.doors.connection import Blocked, Slot
from headrace.doors.kafka.auto_create import create_topic
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.ids import NO_TOPIC_ID
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import RequestHeader
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.metadata import ClusterView, encode_metadata, encode_topic_row

_BY_ID_FROM: Final = 12


def handle(
    frame: memoryview, header: RequestHeader, slot: Slot, session: Session, resumed: str | None
) -> Blocked | None:
    request = MetadataRequest.decode(frame, header.api_version, header.body_at)
    asked = _asked(request, header.api_version)
    if asked is None or not _needs_creation(asked, request, session):
        rows = _rows(asked, header.api_version, session)
        slot.fill((encode_metadata(header.api_version, header.correlation_id, _cluster(session), rows),))
        return None
    session.door.tasks.spawn(_create_and_answer(asked, header, slot, session))
    return None


async def _create_and_answer(
    asked: list[MetadataRequestTopic], header: RequestHeader, slot: Slot, session: Session
) -> None:
    failed: dict[str, HeadraceError] = {}
    for topic in asked:
        if topic.name and session.broker.topics.find(topic.name) is None:
            error = await create_topic(topic.name, session)
            if error is not None:
                failed[topic.name] = error
    rows = _rows(asked, header.api_version, session, failed)
    slot.fill((encode_metadata(header.api_version, header.correlation_id, _cluster(session), rows),))


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
    failed: dict[str, HeadraceError] | None = None,
) -> list[bytes]:
    if asked is None:
        return [_row(topic, version, session) for topic in session.broker.topics.all()]
    rows = []
    for wanted in asked:
        by_id = wanted.name is None
        topics = session.broker.topics
        topic = topics.find_by_id(wanted.topic_id) if by_id else topics.find(wanted.name or "")
        if topic is not None:
            rows.append(_row(topic, version, session))
        elif by_id:
            missing = MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if version >= 12 else "",
                topic_id=wanted.topic_id,
            )
            rows.append(encode_topic_row(version, missing))
        else:
            rows.append(encode_topic_row(version, _missing(wanted.name or "", failed or {})))
    return rows


def _missing(name: str, failed: dict[str, HeadraceError]) -> MetadataResponseTopic:
    code = code_of(failed[name]) if name in failed else missing_code(name)
    return MetadataResponseTopic(error_code=code, name=name, topic_id=NO_TOPIC_ID)


def _row(topic: Topic, version: int, session: Session) -> bytes:
    rows = session.door.topic_rows
    found = rows.find(topic.id, topic.revision, version)
    if found is not None:
        return found
    node = session.broker.identity.broker_id
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
            )
            for partition in topic.partitions
        ],
    )
    return rows.add(topic.id, topic.revision, version, described)


def _cluster(session: Session) -> ClusterView:
    identity = session.broker.identity
    host, port = session.advertised
    return ClusterView(
        brokers=[MetadataResponseBroker(identity.broker_id, host, port, identity.rack)],
        cluster_id=identity.cluster_id,
        controller_id=identity.broker_id,
    )
