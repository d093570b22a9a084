"""Requests about producers and their transactions."""

from headrace.broker.access.words import Operation, Resource
from headrace.doors.kafka.rights import Answer, Proceed, completed, may_topic, right, split, whole
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from headrace.wire.kafka.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from headrace.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse
from headrace.wire.kafka.messages.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from headrace.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BROKERS_FROM = 4


def _init_producer_id(request: InitProducerIdRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    if request.transactional_id is not None:
        if guard.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return proceed(request)
        return InitProducerIdResponse(error_code=_TRANSACTION, producer_epoch=-1)
    if guard.may_any(Operation.WRITE, Resource.TOPIC) or guard.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER):
        return proceed(request)
    return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)


def _add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    if version >= _BROKERS_FROM:
        is_broker = session.guard.may(Operation.CLUSTER_ACTION, Resource.CLUSTER)
        return proceed(request) if is_broker else AddPartitionsToTxnResponse(error_code=_CLUSTER)
    if not session.guard.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return _refused_partitions(request, {}, _TRANSACTION)
    _, refused = split(request.topics, may_topic(session, Operation.WRITE))
    if not refused:
        return proceed(request)
    codes = {topic.name: _TOPIC for topic in refused}
    topics = session.broker.topics
    codes |= {
        topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in request.topics
        if topic.name not in codes and not all(topics.has_partition(topic.name, each) for each in topic.partitions)
    }
    return _refused_partitions(request, codes, ErrorCode.OPERATION_NOT_ATTEMPTED)


def _refused_partitions(
    request: AddPartitionsToTxnRequest, codes: dict[str, ErrorCode], otherwise: ErrorCode
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, codes.get(topic.name, otherwise))
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_offsets_to_txn(request: AddOffsetsToTxnRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    if not session.guard.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_TRANSACTION)
    if not session.guard.may(Operation.READ, Resource.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=_GROUP)
    return proceed(request)


def _txn_offset_commit(request: TxnOffsetCommitRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard
    if not guard.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return TxnOffsetCommitResponse(topics=[_refused_commit(topic, _TRANSACTION) for topic in request.topics])
    if not guard.may(Operation.READ, Resource.GROUP, request.group_id):
        return TxnOffsetCommitResponse(topics=[_refused_commit(topic, _GROUP) for topic in request.topics])
    request.topics, refused = split(request.topics, may_topic(session, Operation.READ))
    rows = [_refused_commit(topic, _TOPIC) for topic in refused]
    if refused and not request.topics:
        return TxnOffsetCommitResponse(topics=rows)

    def complete(response: TxnOffsetCommitResponse) -> None:
        response.topics += rows

    return completed(proceed(request), complete)


def _refused_commit(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]
    )


def _describe_transactions(
    request: DescribeTransactionsRequest, version: int, session: Session, proceed: Proceed
) -> Answer:
    guard = session.guard
    request.transactional_ids, refused = split(
        request.transactional_ids, lambda each: guard.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each)
    )

    def complete(response: DescribeTransactionsResponse) -> None:
        for state in response.transaction_states:
            state.topics = [each for each in state.topics if guard.sees(Operation.DESCRIBE, Resource.TOPIC, each.topic)]
        response.transaction_states += [
            TransactionState(error_code=_TRANSACTION, transactional_id=each) for each in refused
        ]

    return completed(proceed(request), complete)


def _list_transactions(request: ListTransactionsRequest, version: int, session: Session, proceed: Proceed) -> Answer:
    guard = session.guard

    def complete(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            each
            for each in response.transaction_states
            if guard.sees(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each.transactional_id)
        ]

    return completed(proceed(request), complete)


INIT_PRODUCER_ID = right(
    (Operation.WRITE, Resource.TRANSACTIONAL_ID),
    (Operation.WRITE, Resource.TOPIC),
    (Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),
    guard=_init_producer_id,
)
ADD_PARTITIONS_TO_TXN = right(
    (Operation.WRITE, Resource.TRANSACTIONAL_ID),
    (Operation.WRITE, Resource.TOPIC),
    (Operation.CLUSTER_ACTION, Resource.CLUSTER),
    guard=_add_partitions_to_txn,
)
ADD_OFFSETS_TO_TXN = right(
    (Operation.WRITE, Resource.TRANSACTIONAL_ID), (Operation.READ, Resource.GROUP), guard=_add_offsets_to_txn
)
END_TXN = whole(
    Operation.WRITE,
    Resource.TRANSACTIONAL_ID,
    lambda _, code: EndTxnResponse(error_code=code),
    "transactional_id",
)
TXN_OFFSET_COMMIT = right(
    (Operation.WRITE, Resource.TRANSACTIONAL_ID),
    (Operation.READ, Resource.GROUP),
    (Operation.READ, Resource.TOPIC),
    guard=_txn_offset_commit,
)
DESCRIBE_TRANSACTIONS = right(
    (Operation.DESCRIBE, Resource.TRANSACTIONAL_ID), (Operation.DESCRIBE, Resource.TOPIC), guard=_describe_transactions
)
LIST_TRANSACTIONS = right((Operation.DESCRIBE, Resource.TRANSACTIONAL_ID), guard=_list_transactions)
