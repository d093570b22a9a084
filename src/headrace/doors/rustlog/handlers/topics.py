"""CreateTopic, ListTopics, DescribeTopic, DescribePartition.

- This door creates names without dots only, and up to 1000 partitions.
- Internal topics are neither listed nor hidden: who knows their name may read them.
- What another broker leads, it is asked about.
"""

from typing import Final

from headrace.doors.rustlog.errors import refused
from headrace.doors.rustlog.session import Session
from headrace.errors import AlreadyExists
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codes import FRAME_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX
from headrace.wire.rustlog.names import is_creatable

_TOPIC_CONFIG: Final = {"max.message.bytes": str(FRAME_BYTES_MAX + 1024 * 1024)}
"""The protocol promises records up to a whole frame; Kafka's default of 1 MiB would refuse them."""


async def create(request: m.CreateTopic, session: Session) -> m.Response:
    if not is_creatable(request.topic):
        return refused("topic must be 1 to 255 letters, digits, '_' or '-'", "invalid_topic_name")
    count = request.partition_count
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        return refused(
            f"partition_count must be 1 to {PARTITIONS_PER_TOPIC_MAX}, not {count}", "invalid_partition_count"
        )
    try:
        topic = await session.broker.topics.create(request.topic, partitions=count, config=_TOPIC_CONFIG)
    except AlreadyExists:
        return refused(f"Topic '{request.topic}' already exists", "topic_already_exists")
    return m.CreateTopicResponse(success=True, partitions_created=len(topic.partitions))


def list_all(request: m.ListTopics, session: Session) -> m.Response:
    topics = session.visible_topics()
    return m.ListTopicsResponse(
        topics=[m.TopicSummary(name=topic.name, partition_count=len(topic.partitions)) for topic in topics]
    )


async def describe(request: m.DescribeTopic, session: Session) -> m.Response:
    topic = session.broker.topics.get(request.topic)
    facts = await session.broker.forwarding.facts_of(topic, range(len(topic.partitions)))
    return m.DescribeTopicResponse(
        topic=topic.name,
        partitions=[
            m.PartitionDescription(
                partition=index,
                high_watermark=each.high_watermark,
                log_start_offset=each.log_start,
                segment_count=each.segment_count,
            )
            for index, each in sorted(facts.items())
        ],
    )


async def describe_partition(request: m.DescribePartition, session: Session) -> m.Response:
    topics = session.broker.topics
    index = topics.partition(request.topic, request.partition).index
    facts = (await session.broker.forwarding.facts_of(topics.get(request.topic), [index]))[index]
    return m.DescribePartitionResponse(
        topic=request.topic,
        partition=index,
        high_watermark=facts.high_watermark,
        log_start_offset=facts.log_start,
        segment_count=facts.segment_count,
    )
