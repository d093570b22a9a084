"""AddPartitionsToTxn, v0-v3 (v4 and up are between brokers).

Either all partitions are added or none: where one does not exist, the others are OPERATION_NOT_ATTEMPTED. Internal topics
are TOPIC_AUTHORIZATION_FAILED, as in Kafka: offsets take part through AddOffsetsToTxn.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.ownership import is_internal
from headrace.broker.transactions.events import Identity, TopicPartition
from headrace.doors.kafka.coordination import respond, transaction_code
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

_KNOWS_FENCING_FROM: Final = 2


def handle(request: AddPartitionsToTxnRequest, version: int, session: Session) -> Message | Deferred[Message]:
    partitions = frozenset(TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions)
    topics = session.broker.topics
    refused = {
        each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for each in partitions
        if not topics.has_partition(each.topic, each.partition)
    }
    refused |= {each: ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in partitions if is_internal(each.topic)}
    if refused:
        return _response(request, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    return respond(
        lambda: session.broker.transactions.add_partitions(request.transactional_id, producer, partitions),
        lambda error: _response(request, transaction_code(error, knows_fencing=version >= _KNOWS_FENCING_FROM)),
        lambda code: _response(request, code),
    )


def _response(
    request: AddPartitionsToTxnRequest,
    code: ErrorCode,
    refused: Mapping[TopicPartition, ErrorCode] = MappingProxyType({}),
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, refused.get(TopicPartition(topic.name, index), code))
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
