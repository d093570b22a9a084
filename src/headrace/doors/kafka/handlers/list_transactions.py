"""ListTransactions, v0-v2. Filters by state and producer; by age of the open transaction (v1) and by name (v2)."""

from headrace.broker.groups.consumer.pattern import InvalidPattern, NamePattern
from headrace.broker.transactions.events import TransactionImage
from headrace.doors.kafka.coordination import coordinator_code
from headrace.doors.kafka.handlers.describe_transactions import STATE_NAMES
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse, TransactionState


def handle(request: ListTransactionsRequest, version: int, session: Session) -> ListTransactionsResponse:
    known = set(STATE_NAMES.values())
    try:
        images = session.broker.transactions.all()
        names = NamePattern(text).select(images) if (text := request.transactional_id_pattern) else frozenset(images)
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except CoordinatorLoading as error:
        return ListTransactionsResponse(error_code=coordinator_code(error))
    now_ms = session.broker.clock.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in known],
        transaction_states=[
            TransactionState(name, image.producer_id, STATE_NAMES[image.state])
            for name, image in images.items()
            if name in names and _is_wanted(image, request, now_ms)
        ],
    )


def _is_wanted(image: TransactionImage, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and STATE_NAMES[image.state] not in request.state_filters:
        return False
    if request.producer_id_filters and image.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0:
        return image.started_ms >= 0 and now_ms - image.started_ms >= request.duration_filter
    return True
