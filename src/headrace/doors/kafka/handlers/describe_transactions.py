"""DescribeTransactions, v0."""

from headrace.broker.transactions.events import TransactionState as State
from headrace.doors.kafka.coordination import by_topic, coordinator_code
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, NotCoordinator
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

STATE_NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
}
"""As Kafka's tools show them."""


def handle(request: DescribeTransactionsRequest, version: int, session: Session) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(each, session) for each in request.transactional_ids]
    )


def _describe(transactional_id: str, session: Session) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
    try:
        image = session.broker.transactions.find(transactional_id)
    except (CoordinatorLoading, NotCoordinator) as error:
        return TransactionState(error_code=coordinator_code(error), transactional_id=transactional_id)
    if image is None:
        return TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            transactional_id=transactional_id,
        )
    topics = by_topic((each.topic, each.partition) for each in image.partitions)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[image.state],
        transaction_timeout_ms=image.timeout_ms,
        transaction_start_time_ms=image.started_ms,
        producer_id=image.producer_id,
        producer_epoch=image.epoch,
        topics=[TopicData(topic, partitions) for topic, partitions in topics.items()],
    )
