"""EndTxn, v0-v5. Answered when the outcome is durable; markers follow. A repeat is answered like the original.

From v5 the producer goes on under the epoch, and at times the id, that the answer names (KIP-890, version 2).
"""

from collections.abc import Awaitable
from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.transactions.events import Identity
from headrace.doors.kafka.coordination import coordinator_code, respond, transaction_code
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse

_KNOWS_FENCING_FROM: Final = 2
_BUMPING_FROM: Final = 5


def handle(
    request: EndTxnRequest, version: int, session: Session
) -> Message | Deferred[Message] | Awaitable[EndTxnResponse]:
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    if version >= _BUMPING_FROM:
        return _end_and_bump(request, producer, session)
    return respond(
        lambda: session.broker.transactions.end(request.transactional_id, producer, is_commit=request.committed),
        lambda error: EndTxnResponse(error_code=transaction_code(error, knows_fencing=version >= _KNOWS_FENCING_FROM)),
        lambda code: EndTxnResponse(error_code=code),
    )


async def _end_and_bump(request: EndTxnRequest, producer: Identity, session: Session) -> EndTxnResponse:
    transactions = session.broker.transactions
    try:
        reply = await transactions.end_and_bump(request.transactional_id, producer, is_commit=request.committed)
    except HeadraceError as error:
        return EndTxnResponse(error_code=coordinator_code(error))
    return EndTxnResponse(
        error_code=transaction_code(reply.error, knows_fencing=True),
        producer_id=reply.producer.producer_id,
        producer_epoch=reply.producer.epoch,
    )
