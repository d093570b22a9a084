"""ConsumerGroupDescribe, v0-v1.

Groups of the classic kind are not found here; tools then ask DescribeGroups. Assignments name topics that exist: a member may hold
partitions of one that was deleted until its next heartbeat.
"""

from typing import Final

from headrace.broker.access.words import Resource
from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.consumer.member import Member as GroupMember
from headrace.doors.kafka.coordination import by_topic, coordinator_code, is_valid_group
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, NotCoordinator
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def handle(request: ConsumerGroupDescribeRequest, version: int, session: Session) -> ConsumerGroupDescribeResponse:
    groups = [_describe(group_id, session) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = session.guard.operations(Resource.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(group_id: str, session: Session) -> DescribedGroup:
    if not is_valid_group(group_id):
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        group = session.broker.groups.find(group_id)
    except (CoordinatorLoading, NotCoordinator) as error:
        return DescribedGroup(error_code=coordinator_code(error), group_id=group_id)
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message, group_id=group_id)
    names = session.broker.groups.topic_names()
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(member, names) for member in group.members.values()],
    )


def _member(member: GroupMember, names: dict[bytes, str]) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(member.target, names),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: frozenset[TopicIdPartition], names: dict[bytes, str]) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic_id, names[topic_id], indexes)
            for topic_id, indexes in by_topic(partitions).items()
            if topic_id in names
        ]
    )
