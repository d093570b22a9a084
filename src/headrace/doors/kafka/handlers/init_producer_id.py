"""InitProducerId, v0-v5. An idempotent producer gets a fresh id with epoch 0."""

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse


async def handle(request: InitProducerIdRequest, version: int, session: Session) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=await session.broker.producer_ids.take(), producer_epoch=0)
