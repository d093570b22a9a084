"""OffsetForLeaderEpoch, v2-v4: where an epoch ends, so that a client can tell whether its position survived."""

from headrace.doors.kafka.epochs import check_epoch
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from headrace.wire.kafka.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(request: OffsetForLeaderEpochRequest, version: int, session: Session) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_answer(topic.topic, partition, session) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(name: str, asked: OffsetForLeaderPartition, session: Session) -> EpochEndOffset:
    try:
        log = session.broker.topics.led_partition(name, asked.partition)
        check_epoch(log, asked.current_leader_epoch)
    except HeadraceError as error:
        return EpochEndOffset(error_code=code_of(error), partition=asked.partition)
    end = log.end_of_epoch(asked.leader_epoch) if asked.leader_epoch >= 0 else None
    if end is None:
        return EpochEndOffset(partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.start_offset)
