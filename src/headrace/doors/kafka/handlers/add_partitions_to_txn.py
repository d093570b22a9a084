"""AddPartitionsToTxn, v0-v5.

- Either all partitions are added or none: where one does not exist, the others are OPERATION_NOT_ATTEMPTED. Internal topics
  are TOPIC_AUTHORIZATION_FAILED, as in Kafka: offsets take part through AddOffsetsToTxn.
- From v4 it is a broker that asks, with the right to CLUSTER_ACTION: for several transactions at once, each answered by
  itself. With `verify_only` nothing is added, and a partition that is missing is TRANSACTION_ABORTABLE (KIP-890).
"""

from collections.abc import Awaitable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.ownership import is_internal
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError
from headrace.doors.kafka.coordination import coordinator_code, respond, transaction_code
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

_KNOWS_FENCING_FROM: Final = 2
_BATCHED_FROM: Final = 4

_Topics = Sequence[AddPartitionsToTxnTopic]
_Codes = Mapping[TopicPartition, ErrorCode]
_NONE: Final[_Codes] = MappingProxyType({})


def handle(request: AddPartitionsToTxnRequest, version: int, session: Session) -> Message | Awaitable[Message]:
    if version >= _BATCHED_FROM:
        return _handle_batch(request.transactions, session)
    if refused := _refused(request.topics, session):
        return _response(request.topics, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    partitions = _partitions(request.topics)
    return respond(
        lambda: session.broker.transactions.add_partitions(request.transactional_id, producer, partitions),
        lambda error: _response(request.topics, transaction_code(error, knows_fencing=version >= _KNOWS_FENCING_FROM)),
        lambda code: _response(request.topics, code),
    )


async def _handle_batch(
    transactions: Sequence[AddPartitionsToTxnTransaction], session: Session
) -> AddPartitionsToTxnResponse:
    """All are asked for before one is waited for: a transaction that is slow does not hold up the others."""
    asked = [_ask(each, session) for each in transactions]
    results = []
    for transaction, rows in zip(transactions, asked, strict=True):
        found = await rows if isinstance(rows, Deferred) else rows
        results.append(AddPartitionsToTxnResult(transaction.transactional_id, found))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _ask(
    transaction: AddPartitionsToTxnTransaction, session: Session
) -> list[AddPartitionsToTxnTopicResult] | Deferred[list[AddPartitionsToTxnTopicResult]]:
    topics = transaction.topics
    if refused := _refused(topics, session):
        return _rows(topics, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    name = transaction.transactional_id
    producer = Identity(producer_id=transaction.producer_id, epoch=transaction.producer_epoch)
    done: Deferred[list[AddPartitionsToTxnTopicResult]] = Deferred()

    def settled(asked: Deferred[TransactionError]) -> None:
        try:
            done.resolve(_rows(topics, transaction_code(asked.result(), knows_fencing=True)))
        except HeadraceError as error:
            done.resolve(_rows(topics, coordinator_code(error)))

    try:
        if transaction.verify_only:
            return _verified(name, producer, topics, session)
        session.broker.transactions.add_partitions(name, producer, _partitions(topics)).then(settled)
    except HeadraceError as error:
        return _rows(topics, coordinator_code(error))
    return done


def _verified(name: str, producer: Identity, topics: _Topics, session: Session) -> list[AddPartitionsToTxnTopicResult]:
    transactions = session.broker.transactions
    error = transactions.check_holder(name, producer)
    if error is not TransactionError.NONE:
        return _rows(topics, transaction_code(error, knows_fencing=True))
    missing = transactions.not_added(name, producer, _partitions(topics))
    return _rows(topics, ErrorCode.NONE, dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE))


def _partitions(topics: _Topics) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _refused(topics: _Topics, session: Session) -> dict[TopicPartition, ErrorCode]:
    partitions = _partitions(topics)
    known = session.broker.topics
    refused = {
        each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for each in partitions
        if not known.has_partition(each.topic, each.partition)
    }
    return refused | {each: ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in partitions if is_internal(each.topic)}


def _response(topics: _Topics, code: ErrorCode, refused: _Codes = _NONE) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic=_rows(topics, code, refused))


def _rows(topics: _Topics, code: ErrorCode, refused: _Codes = _NONE) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, refused.get(TopicPartition(topic.name, index), code))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
