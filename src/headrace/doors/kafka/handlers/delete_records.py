"""DeleteRecords, v0-v2. Offset -1 is the high watermark; the answer is the new log start."""

from typing import Final

from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_records_request import DeleteRecordsRequest
from headrace.wire.kafka.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_OFFSET: Final = -1


async def handle(request: DeleteRecordsRequest, version: int, session: Session) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [await _delete(topic.name, each.partition_index, each.offset, session) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _delete(topic: str, index: int, offset: int, session: Session) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = await session.broker.topics.delete_records(topic, index, offset)
    except HeadraceError as error:
        return DeleteRecordsPartitionResult(index, _NO_OFFSET, code_of(error))
    return DeleteRecordsPartitionResult(index, low_watermark, ErrorCode.NONE)
