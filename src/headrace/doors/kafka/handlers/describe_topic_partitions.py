"""DescribeTopicPartitions, v0.

- Topics are answered in the order of their names; unknown ones with error 3 and no partitions.
- At most `response_partition_limit` partitions; the next cursor says where to go on, null when done.
- A cursor names one of the topics asked for, and one of its partitions; any other is INVALID_REQUEST for each topic.
"""

from typing import Final

from headrace.broker.access.words import Resource
from headrace.broker.identity import NOBODY
from headrace.broker.topics import PartitionLog, Topic
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.kafka.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_PARTITIONS_MAX: Final = 2000


def handle(request: DescribeTopicPartitionsRequest, version: int, session: Session) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics})
    cursor = request.cursor
    if has_wrong_cursor(request):
        return _refused(request)
    if not names:
        names = [topic.name for topic in session.broker.topics.all()]
    first_partition = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first_partition = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    left = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, first_partition))
        topic = session.broker.topics.find(name)
        if topic is None:
            operations = session.guard.operations(Resource.TOPIC, name)
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=missing_code(name), name=name, topic_authorized_operations=operations
                )
            )
            continue
        row = _described(topic, first_partition, left, session)
        topics.append(row)
        left -= len(row.partitions)
        end = first_partition + len(row.partitions)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, end))
        first_partition = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def has_wrong_cursor(request: DescribeTopicPartitionsRequest) -> bool:
    cursor = request.cursor
    if cursor is None:
        return False
    return cursor.partition_index < 0 or (
        bool(request.topics) and all(topic.name != cursor.topic_name for topic in request.topics)
    )


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


def _described(topic: Topic, first: int, count: int, session: Session) -> DescribeTopicPartitionsResponseTopic:
    number_of = session.broker.identity.number_of
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(partition, number_of(topic.leaders[partition.index]))
            for partition in topic.partitions[first : first + count]
        ],
        topic_authorized_operations=session.guard.operations(Resource.TOPIC, topic.name),
    )


def _partition(partition: PartitionLog, leader: int) -> DescribeTopicPartitionsResponsePartition:
    replicas = [leader] if leader != NOBODY else []
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
