"""AddOffsetsToTxn, v0-v4: the offsets of a group will be part of the transaction."""

from typing import Final

from headrace.broker.transactions.events import Identity
from headrace.doors.kafka.coordination import coordinator_code, transaction_code
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse

_KNOWS_FENCING_FROM: Final = 2


async def handle(request: AddOffsetsToTxnRequest, version: int, session: Session) -> AddOffsetsToTxnResponse:
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    try:
        error = await session.broker.transactions.add_offsets(request.transactional_id, producer, request.group_id)
    except HeadraceError as failure:
        return AddOffsetsToTxnResponse(error_code=coordinator_code(failure))
    code = transaction_code(error, knows_fencing=version >= _KNOWS_FENCING_FROM)
    return AddOffsetsToTxnResponse(error_code=code)
