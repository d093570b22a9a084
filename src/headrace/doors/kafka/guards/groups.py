"""Requests about groups, their members and their offsets."""

from headrace.broker.access.words import Operation, Resource
from headrace.doors.kafka.rights import Answer, Proceed, completed, may_topic, right, split, topic_name, whole
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
)
from headrace.wire.kafka.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from headrace.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse
from headrace.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListGroupsResponse
from headrace.wire.kafka.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from headrace.wire.kafka.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.kafka.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.kafka.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.kafka.messages.sync_group_response import SyncGroupResponse

_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR = 0, 1
_BATCHED_COORDINATORS_FROM = 4
_BATCHED_OFFSETS_FROM = 8
_BY_ID_FROM = 10
"""Of OffsetCommit and OffsetFetch."""
_TOP_LEVEL_ERROR_FROM = 2
_NULL_PROTOCOL_FROM = 7
_NOBODY = -1
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def _join_group(request: JoinGroupRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if session.guard.may(Operation.READ, Resource.GROUP, request.group_id):
        return proceed(request)
    return JoinGroupResponse(error_code=_GROUP, protocol_name=None if version >= _NULL_PROTOCOL_FROM else "")


def _find_coordinator(request: FindCoordinatorRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if request.key_type not in (_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR):
        return proceed(request)  # There is none of any other kind, and the handler says so.
    is_transaction = request.key_type == _TRANSACTION_COORDINATOR
    resource = Resource.TRANSACTIONAL_ID if is_transaction else Resource.GROUP
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_transaction else _GROUP
    if version < _BATCHED_COORDINATORS_FROM:
        if session.guard.may(Operation.DESCRIBE, resource, request.key):
            return proceed(request)
        return FindCoordinatorResponse(error_code=code, node_id=_NOBODY, port=_NOBODY)
    request.coordinator_keys, refused = split(
        request.coordinator_keys, lambda key: session.guard.may(Operation.DESCRIBE, resource, key)
    )

    def complete(response: FindCoordinatorResponse) -> None:
        response.coordinators += [
            Coordinator(key=key, node_id=_NOBODY, port=_NOBODY, error_code=code) for key in refused
        ]

    return completed(proceed(request), complete)


def _describe_groups(request: DescribeGroupsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    request.groups, refused = split(request.groups, lambda group: guard.may(Operation.DESCRIBE, Resource.GROUP, group))

    def complete(response: DescribeGroupsResponse) -> None:
        response.groups += [DescribedGroup(error_code=_GROUP, group_id=group) for group in refused]

    return completed(proceed(request), complete)


def _consumer_group_describe(
    request: ConsumerGroupDescribeRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    guard = session.guard
    request.group_ids, refused = split(
        request.group_ids, lambda group: guard.may(Operation.DESCRIBE, Resource.GROUP, group)
    )

    def complete(response: ConsumerGroupDescribeResponse) -> None:
        response.groups = [
            group
            if all(guard.sees(Operation.DESCRIBE, Resource.TOPIC, name) for name in _topics_of(group))
            else DescribedConsumerGroup(error_code=_TOPIC, error_message=_HIDDEN_TOPICS, group_id=group.group_id)
            for group in response.groups
        ]
        response.groups += [DescribedConsumerGroup(error_code=_GROUP, group_id=group) for group in refused]

    return completed(proceed(request), complete)


def _topics_of(group: DescribedConsumerGroup) -> set[str]:
    return {
        name
        for member in group.members
        for name in (
            *member.subscribed_topic_names,
            *(each.topic_name for each in member.assignment.topic_partitions),
            *(each.topic_name for each in member.target_assignment.topic_partitions),
        )
    }


def _consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    guard = session.guard
    if not guard.may(Operation.READ, Resource.GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=_GROUP)
    names = request.subscribed_topic_names or ()
    if not all(guard.may(Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        return ConsumerGroupHeartbeatResponse(error_code=_TOPIC)
    return proceed(request)


def _list_groups(request: ListGroupsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard

    def complete(response: ListGroupsResponse) -> None:
        if not guard.sees(Operation.DESCRIBE, Resource.CLUSTER):
            response.groups = [
                each for each in response.groups if guard.sees(Operation.DESCRIBE, Resource.GROUP, each.group_id)
            ]

    return completed(proceed(request), complete)


def _delete_groups(request: DeleteGroupsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    request.groups_names, refused = split(
        request.groups_names, lambda group: session.guard.may(Operation.DELETE, Resource.GROUP, group)
    )

    def complete(response: DeleteGroupsResponse) -> None:
        response.results += [DeletableGroupResult(group, _GROUP) for group in refused]

    return completed(proceed(request), complete)


def _offset_commit(request: OffsetCommitRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    if not guard.may(Operation.READ, Resource.GROUP, request.group_id):
        return OffsetCommitResponse(topics=[_refused_commit(topic, _GROUP) for topic in request.topics])

    def is_allowed(topic: OffsetCommitRequestTopic) -> bool:
        name = topic.name if version < _BY_ID_FROM else topic_name(session, topic.topic_id)
        return name is None or guard.may(Operation.READ, Resource.TOPIC, name)

    request.topics, refused = split(request.topics, is_allowed)
    rows = [_refused_commit(topic, _TOPIC) for topic in refused]
    if refused and not request.topics:
        return OffsetCommitResponse(topics=rows)

    def complete(response: OffsetCommitResponse) -> None:
        response.topics += rows

    return completed(proceed(request), complete)


def _refused_commit(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
    )


def _offset_delete(request: OffsetDeleteRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if not session.guard.may(Operation.DELETE, Resource.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP)
    request.topics, refused = split(request.topics, may_topic(session, Operation.READ))

    def complete(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics += [
                OffsetDeleteResponseTopic(
                    topic.name,
                    [OffsetDeleteResponsePartition(each.partition_index, _TOPIC) for each in topic.partitions],
                )
                for topic in refused
            ]

    return completed(proceed(request), complete)


def _offset_fetch(request: OffsetFetchRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if version >= _BATCHED_OFFSETS_FROM:
        return _offset_fetch_groups(request, version, session, proceed)
    guard = session.guard
    if not guard.may(Operation.DESCRIBE, Resource.GROUP, request.group_id):
        if version >= _TOP_LEVEL_ERROR_FROM:
            return OffsetFetchResponse(error_code=_GROUP)
        rows = [_refused_fetch(each.name, each.partition_indexes, _GROUP) for each in request.topics or ()]
        return OffsetFetchResponse(topics=rows)
    is_all = request.topics is None
    refused: list[OffsetFetchResponseTopic] = []
    if request.topics is not None:
        request.topics, others = split(request.topics, may_topic(session, Operation.DESCRIBE))
        refused = [_refused_fetch(each.name, each.partition_indexes, _TOPIC) for each in others]

    def complete(response: OffsetFetchResponse) -> None:
        if is_all:
            response.topics = [
                each for each in response.topics if guard.sees(Operation.DESCRIBE, Resource.TOPIC, each.name)
            ]
        response.topics += refused

    return completed(proceed(request), complete)


def _refused_fetch(name: str, indexes: list[int], code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(each, -1, -1, "", code) for each in indexes])


def _offset_fetch_groups(request: OffsetFetchRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    request.groups, refused = split(
        request.groups, lambda group: guard.may(Operation.DESCRIBE, Resource.GROUP, group.group_id)
    )
    # A group may be asked for twice: its answers come in the order of the questions.
    is_everything = [group.topics is None for group in request.groups]
    hidden = [_hide_topics(group, version, session) for group in request.groups]

    def complete(response: OffsetFetchResponse) -> None:
        for group, is_all, rows in zip(response.groups, is_everything, hidden, strict=False):
            if group.error_code:
                continue
            if is_all:
                group.topics = [
                    each for each in group.topics if guard.sees(Operation.DESCRIBE, Resource.TOPIC, each.name)
                ]
            group.topics += rows
        response.groups += [OffsetFetchResponseGroup(group_id=each.group_id, error_code=_GROUP) for each in refused]

    return completed(proceed(request), complete)


def _hide_topics(group: OffsetFetchRequestGroup, version: int, session: Session) -> list[OffsetFetchResponseTopics]:
    """Take the topics that the client may not describe out of what is asked, and give their rows of the answer."""
    if group.topics is None:
        return []

    def is_allowed(topic: OffsetFetchRequestTopics) -> bool:
        name = topic.name if version < _BY_ID_FROM else topic_name(session, topic.topic_id)
        return name is None or session.guard.may(Operation.DESCRIBE, Resource.TOPIC, name)

    group.topics, refused = split(group.topics, is_allowed)
    return [
        OffsetFetchResponseTopics(
            each.name,
            each.topic_id,
            [OffsetFetchResponsePartitions(index, -1, -1, "", _TOPIC) for index in each.partition_indexes],
        )
        for each in refused
    ]


JOIN_GROUP = right((Operation.READ, Resource.GROUP), guard=_join_group)
SYNC_GROUP = whole(Operation.READ, Resource.GROUP, lambda _, code: SyncGroupResponse(error_code=code), "group_id")
HEARTBEAT = whole(Operation.READ, Resource.GROUP, lambda _, code: HeartbeatResponse(error_code=code), "group_id")
LEAVE_GROUP = whole(Operation.READ, Resource.GROUP, lambda _, code: LeaveGroupResponse(error_code=code), "group_id")
FIND_COORDINATOR = right(
    (Operation.DESCRIBE, Resource.GROUP), (Operation.DESCRIBE, Resource.TRANSACTIONAL_ID), guard=_find_coordinator
)
DESCRIBE_GROUPS = right((Operation.DESCRIBE, Resource.GROUP), guard=_describe_groups)
CONSUMER_GROUP_DESCRIBE = right(
    (Operation.DESCRIBE, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC), guard=_consumer_group_describe
)
CONSUMER_GROUP_HEARTBEAT = right(
    (Operation.READ, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC), guard=_consumer_group_heartbeat
)
LIST_GROUPS = right((Operation.DESCRIBE, Resource.CLUSTER), (Operation.DESCRIBE, Resource.GROUP), guard=_list_groups)
DELETE_GROUPS = right((Operation.DELETE, Resource.GROUP), guard=_delete_groups)
OFFSET_COMMIT = right((Operation.READ, Resource.GROUP), (Operation.READ, Resource.TOPIC), guard=_offset_commit)
OFFSET_FETCH = right((Operation.DESCRIBE, Resource.GROUP), (Operation.DESCRIBE, Resource.TOPIC), guard=_offset_fetch)
OFFSET_DELETE = right((Operation.DELETE, Resource.GROUP), (Operation.READ, Resource.TOPIC), guard=_offset_delete)
