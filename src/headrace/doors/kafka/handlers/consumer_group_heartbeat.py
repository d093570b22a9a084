"""ConsumerGroupHeartbeat, v0-v1 (KIP-848). In v0 the coordinator may choose the member id, in v1 the client does."""

from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.broker.deferred import Deferred
from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.events import LEAVING_FOR_A_WHILE, Heartbeat, HeartbeatReply, Sight
from headrace.broker.groups.outcome import GroupError
from headrace.chance import new_uuid
from headrace.doors.kafka.coordination import by_topic, client_host, group_code, is_valid_group, respond
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_OWN_MEMBER_ID_FROM: Final = 1


def handle(request: ConsumerGroupHeartbeatRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return _refused(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    is_joining = request.member_epoch == 0 and version < _OWN_MEMBER_ID_FROM
    if not request.member_id and not is_joining:
        return _refused(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        return _refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    names = request.subscribed_topic_names
    event = Heartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=session.client_id or "",
        client_host=client_host(session),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        sight=_sight(session),
        spare_member_id=str(new_uuid(session.broker.chance)),
    )
    return respond(
        lambda: session.broker.groups.consumer_heartbeat(request.group_id, event),
        _response,
        lambda code: _refused(code, None),
    )


def _sight(session: Session) -> Sight | None:
    guard = session.guard
    if not guard.is_on:
        return None
    key = (guard.principal, guard.host, guard.revision)
    return Sight(key, lambda name: guard.sees(Operation.DESCRIBE, Resource.TOPIC, name))


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _response(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = Assignment([TopicPartitions(*each) for each in by_topic(reply.assignment).items()])
    return ConsumerGroupHeartbeatResponse(
        error_code=group_code(reply.error),
        error_message=reply.message,
        member_id=None if reply.error is not GroupError.NONE else reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def _refused(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
