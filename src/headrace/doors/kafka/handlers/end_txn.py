"""EndTxn, v0-v4. Answered when the outcome is durable; markers follow. A repeat is answered like the original."""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.transactions.events import Identity
from headrace.doors.kafka.coordination import respond, transaction_code
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.end_txn_request import EndTxnRequest
from headrace.wire.kafka.messages.end_txn_response import EndTxnResponse

_KNOWS_FENCING_FROM: Final = 2


def handle(request: EndTxnRequest, version: int, session: Session) -> Message | Deferred[Message]:
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    return respond(
        lambda: session.broker.transactions.end(request.transactional_id, producer, is_commit=request.committed),
        lambda error: EndTxnResponse(error_code=transaction_code(error, knows_fencing=version >= _KNOWS_FENCING_FROM)),
        lambda code: EndTxnResponse(error_code=code),
    )
