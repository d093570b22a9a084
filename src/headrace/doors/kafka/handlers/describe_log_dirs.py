"""DescribeLogDirs, v1-v4.

Two directories: the broker's own, where a partition's size is what of it has not been trimmed yet, and the object store, by its
address, where it is what has been uploaded and not deleted. Records on their way are in both. Clients that expect one directory
for a replica (`kafka-log-dirs` shows them all) take the last, which is the object store: the log itself. Topics none of whose
partitions were asked for are left out.
"""

from collections.abc import Callable, Sequence

from headrace.broker.topics import PartitionLog, Topic
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
        wanted = [(topic, topic.partitions) for topic in topics.all()]
    else:
        wanted = [
            (topic, [each for each in topic.partitions if each.index in asked.partitions])
            for asked in request.topics
            if (topic := topics.find(asked.topic)) is not None
        ]
    identity = session.broker.identity
    return DescribeLogDirsResponse(
        results=[
            _directory(identity.data_dir, wanted, lambda partition: partition.tail_bytes),
            _directory(identity.bucket, wanted, lambda partition: partition.uploaded_bytes),
        ]
    )


def _directory(
    name: str, wanted: Sequence[tuple[Topic, Sequence[PartitionLog]]], size_of: Callable[[PartitionLog], int]
) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        log_dir=name,
        topics=[
            DescribeLogDirsTopic(
                topic.name,
                [
                    DescribeLogDirsPartition(partition_index=each.index, partition_size=size_of(each))
                    for each in partitions
                ],
            )
            for topic, partitions in wanted
            if partitions
        ],
    )
