"""OffsetDelete, v0. Offsets of topics that members of the group read right now stay (KIP-496)."""

from headrace.broker.groups.outcome import GroupError
from headrace.doors.kafka.coordination import coordinator_code, group_code, is_valid_group
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.kafka.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(request: OffsetDeleteRequest, version: int, session: Session) -> OffsetDeleteResponse:
    places = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if not is_valid_group(request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    groups = session.broker.groups
    try:
        if (refusal := groups.check_deletion(request.group_id)) is not GroupError.NONE:
            return OffsetDeleteResponse(error_code=group_code(refusal))
        results = await groups.delete_offsets(request.group_id, places)
    except HeadraceError as error:
        return OffsetDeleteResponse(error_code=coordinator_code(error))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(
                        each.partition_index,
                        _code(
                            topic.name,
                            each.partition_index,
                            group_code(results[(topic.name, each.partition_index)]),
                            session,
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _code(topic: str, partition: int, code: ErrorCode, session: Session) -> ErrorCode:
    is_there = session.broker.topics.has_partition(topic, partition)
    return code if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
