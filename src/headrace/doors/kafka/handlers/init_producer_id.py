"""InitProducerId, v0-v5.

- An idempotent producer gets a fresh id with epoch 0.
- A transactional one gets the id of its name under a new epoch, which fences its predecessor; what that one left open
  is aborted first, and the client is told to come back meanwhile (trap 31).
- From v3 a producer that recovers says who it was (KIP-360).
"""

from typing import Final

from headrace.broker.transactions.events import Identity
from headrace.doors.kafka.coordination import coordinator_code, transaction_code
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse

_KNOWS_FENCING_FROM: Final = 4


async def handle(request: InitProducerIdRequest, version: int, session: Session) -> InitProducerIdResponse:
    if request.transactional_id is None:
        return await _fresh(session)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    expected = None
    if request.producer_id != -1:
        expected = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    try:
        reply = await session.broker.transactions.init(
            request.transactional_id, timeout_ms=request.transaction_timeout_ms, expected=expected
        )
    except HeadraceError as error:
        return InitProducerIdResponse(error_code=coordinator_code(error), producer_epoch=-1)
    return InitProducerIdResponse(
        error_code=transaction_code(reply.error, knows_fencing=version >= _KNOWS_FENCING_FROM),
        producer_id=reply.producer.producer_id,
        producer_epoch=reply.producer.epoch,
    )


async def _fresh(session: Session) -> InitProducerIdResponse:
    try:
        producer_id = await session.broker.producer_ids.take()
    except HeadraceError as error:
        return InitProducerIdResponse(error_code=coordinator_code(error), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
