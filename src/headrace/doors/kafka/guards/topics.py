"""Requests about topics and their records."""

from headrace.broker.access.words import Operation, Resource
from headrace.doors.kafka.handlers.describe_topic_partitions import has_wrong_cursor
from headrace.doors.kafka.names import missing_code
from headrace.doors.kafka.rights import Answer, Proceed, completed, may_topic, right, split, topic_name
from headrace.doors.kafka.session import Session
from headrace.ids import NO_TOPIC_ID
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_partitions_request import CreatePartitionsRequest
from headrace.wire.kafka.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from headrace.wire.kafka.messages.delete_records_request import DeleteRecordsRequest
from headrace.wire.kafka.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.kafka.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from headrace.wire.kafka.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.kafka.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from headrace.wire.kafka.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from headrace.wire.kafka.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.wire.kafka.messages.list_offsets_request import ListOffsetsRequest
from headrace.wire.kafka.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from headrace.wire.kafka.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _list_offsets(request: ListOffsetsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    request.topics, refused = split(request.topics, may_topic(session, Operation.DESCRIBE))

    def complete(response: ListOffsetsResponse) -> None:
        response.topics += [
            ListOffsetsTopicResponse(
                topic.name,
                [ListOffsetsPartitionResponse(each.partition_index, _REFUSED) for each in topic.partitions],
            )
            for topic in refused
        ]

    return completed(proceed(request), complete)


def _create_topics(request: CreateTopicsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    refused: list[CreatableTopic] = []
    if not guard.sees(Operation.CREATE, Resource.CLUSTER):
        request.topics, refused = split(request.topics, may_topic(session, Operation.CREATE))

    def complete(response: CreateTopicsResponse) -> None:
        for made in response.topics:
            if not made.error_code and not guard.sees(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, made.name):
                made.topic_config_error_code = _REFUSED
                made.num_partitions = made.replication_factor = -1
                made.configs = []
        response.topics += [
            CreatableTopicResult(name=name, error_code=_REFUSED, error_message="Authorization failed.", configs=[])
            for name in dict.fromkeys(topic.name for topic in refused)
        ]

    return completed(proceed(request), complete)


def _delete_topics(request: DeleteTopicsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    if guard.sees(Operation.DELETE, Resource.CLUSTER):
        return proceed(request)
    refused: list[DeletableTopicResult] = []

    def is_allowed(asked: DeleteTopicState) -> bool:
        name = asked.name if asked.name is not None else topic_name(session, asked.topic_id)
        if name is None:
            return True  # Nobody has that id, and the handler says so.
        is_seen = guard.sees(Operation.DESCRIBE, Resource.TOPIC, name)
        if is_seen and session.broker.topics.find(name) is None:
            return True  # There is none, and they may know it.
        if is_seen and guard.may(Operation.DELETE, Resource.TOPIC, name):
            return True
        refused.append(
            DeletableTopicResult(
                name=asked.name if asked.name is not None or not is_seen else name,
                topic_id=asked.topic_id,
                error_code=_REFUSED,
                error_message="Topic authorization failed.",
            )
        )
        return False

    request.topics, _ = split(request.topics, is_allowed)
    request.topic_names, _ = split(request.topic_names, lambda name: is_allowed(DeleteTopicState(name, NO_TOPIC_ID)))

    def complete(response: DeleteTopicsResponse) -> None:
        response.responses += refused

    return completed(proceed(request), complete)


def _delete_records(request: DeleteRecordsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    request.topics, refused = split(request.topics, may_topic(session, Operation.DELETE))

    def complete(response: DeleteRecordsResponse) -> None:
        response.topics += [
            DeleteRecordsTopicResult(
                topic.name,
                [DeleteRecordsPartitionResult(each.partition_index, -1, _REFUSED) for each in topic.partitions],
            )
            for topic in refused
        ]

    return completed(proceed(request), complete)


def _create_partitions(request: CreatePartitionsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    request.topics, refused = split(request.topics, may_topic(session, Operation.ALTER))

    def complete(response: CreatePartitionsResponse) -> None:
        response.results += [CreatePartitionsTopicResult(topic.name, _REFUSED) for topic in refused]

    return completed(proceed(request), complete)


def _offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    guard = session.guard
    if guard.sees(Operation.CLUSTER_ACTION, Resource.CLUSTER):
        return proceed(request)
    request.topics, refused = split(
        request.topics, lambda topic: guard.may(Operation.DESCRIBE, Resource.TOPIC, topic.topic)
    )

    def complete(response: OffsetForLeaderEpochResponse) -> None:
        response.topics += [
            OffsetForLeaderTopicResult(
                topic.topic,
                [EpochEndOffset(error_code=_REFUSED, partition=each.partition) for each in topic.partitions],
            )
            for topic in refused
        ]

    return completed(proceed(request), complete)


def _describe_producers(request: DescribeProducersRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    may_read = may_topic(session, Operation.READ)
    # As in Kafka, a name that no topic can have is said to be one whoever asks.
    request.topics, refused = split(
        request.topics, lambda topic: missing_code(topic.name) is ErrorCode.INVALID_TOPIC_EXCEPTION or may_read(topic)
    )

    def complete(response: DescribeProducersResponse) -> None:
        response.topics += [
            TopicResponse(
                topic.name,
                [PartitionResponse(partition_index=index, error_code=_REFUSED) for index in topic.partition_indexes],
            )
            for topic in refused
        ]

    return completed(proceed(request), complete)


def _describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    guard = session.guard
    if has_wrong_cursor(request):
        return proceed(request)  # Refused, whoever asks.
    if not request.topics:
        # Named one by one, without those that this client does not see: the handler takes none for all.
        names = [each.name for each in session.broker.topics.all()]
        request.topics = [TopicRequest(each) for each in names if guard.sees(Operation.DESCRIBE, Resource.TOPIC, each)]
    if (cursor := request.cursor) is not None:
        request.topics = [each for each in request.topics if each.name >= cursor.topic_name]
    allowed, refused = split(request.topics, may_topic(session, Operation.DESCRIBE))
    request.topics = allowed
    if cursor is not None and all(each.name != cursor.topic_name for each in allowed):
        request.cursor = None  # It names a place in a topic that is not described.

    def complete(response: DescribeTopicPartitionsResponse) -> None:
        response.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=_REFUSED, name=name)
            for name in sorted({topic.name for topic in refused})
        ]

    if not allowed:
        response = DescribeTopicPartitionsResponse()
        complete(response)
        return response
    return completed(proceed(request), complete)


LIST_OFFSETS = right((Operation.DESCRIBE, Resource.TOPIC), guard=_list_offsets)
CREATE_TOPICS = right(
    (Operation.CREATE, Resource.CLUSTER),
    (Operation.CREATE, Resource.TOPIC),
    (Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
    guard=_create_topics,
)
DELETE_TOPICS = right(
    (Operation.DELETE, Resource.CLUSTER),
    (Operation.DELETE, Resource.TOPIC),
    (Operation.DESCRIBE, Resource.TOPIC),
    guard=_delete_topics,
)
DELETE_RECORDS = right((Operation.DELETE, Resource.TOPIC), guard=_delete_records)
CREATE_PARTITIONS = right((Operation.ALTER, Resource.TOPIC), guard=_create_partitions)
OFFSET_FOR_LEADER_EPOCH = right(
    (Operation.CLUSTER_ACTION, Resource.CLUSTER),
    (Operation.DESCRIBE, Resource.TOPIC),
    guard=_offset_for_leader_epoch,
)
DESCRIBE_PRODUCERS = right((Operation.READ, Resource.TOPIC), guard=_describe_producers)
DESCRIBE_TOPIC_PARTITIONS = right((Operation.DESCRIBE, Resource.TOPIC), guard=_describe_topic_partitions)
