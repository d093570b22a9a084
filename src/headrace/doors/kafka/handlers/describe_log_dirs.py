"""DescribeLogDirs, v1-v4. There is one directory; a partition's size is what of it has not left this broker yet."""

from headrace.broker.topics import Topic
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.kafka.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(request: DescribeLogDirsRequest, version: int, session: Session) -> DescribeLogDirsResponse:
    topics = session.broker.topics
    if request.topics is None:
        rows = [_topic(topic, None) for topic in topics.all()]
    else:
        rows = [
            _topic(topic, set(wanted.partitions))
            for wanted in request.topics
            if (topic := topics.find(wanted.topic)) is not None
        ]
    result = DescribeLogDirsResult(log_dir=session.broker.identity.data_dir, topics=rows)
    return DescribeLogDirsResponse(results=[result])


def _topic(topic: Topic, indexes: set[int] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        topic.name,
        [
            DescribeLogDirsPartition(partition_index=each.index, partition_size=each.tail_bytes)
            for each in topic.partitions
            if indexes is None or each.index in indexes
        ],
    )
