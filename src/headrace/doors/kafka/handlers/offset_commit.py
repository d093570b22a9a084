"""OffsetCommit, v2-v10.

- The retention of v2-v4 is accepted and ignored (trap 48). From v10 topics are named by id.
- Unknown topics and partitions, and too long a note, are refused one by one; the rest is committed.
- A commit of nobody in particular (generation -1, no member) is for groups without members.
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer
from headrace.broker.offsets import CommittedOffset, Place
from headrace.doors.kafka.coordination import group_code, is_valid_group, respond
from headrace.doors.kafka.offset_rows import check_row, code_of_row, committed_offset
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM: Final = 10
_EPOCH_AWARE_FROM: Final = 9


def handle(request: OffsetCommitRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return _response(request, {}, ErrorCode.INVALID_GROUP_ID)
    offsets: dict[Place, CommittedOffset] = {}
    refused: dict[tuple[str, bytes, int], ErrorCode] = {}
    for topic in request.topics:
        name, code = _find_topic(topic, version, session)
        for partition in topic.partitions:
            error = code or check_row(name, partition, session)
            if error:
                refused[(topic.name, topic.topic_id, partition.partition_index)] = error
            else:
                offsets[(name, partition.partition_index)] = committed_offset(partition)
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
        knows_epochs=version >= _EPOCH_AWARE_FROM,
    )
    return respond(
        lambda: session.broker.groups.commit(request.group_id, offsets, committer),
        lambda error: _response(request, refused, _for_version(error, version)),
        lambda code: _response(request, refused, code),
    )


def _find_topic(topic: OffsetCommitRequestTopic, version: int, session: Session) -> tuple[str, ErrorCode]:
    if version < _TOPIC_IDS_FROM:
        return topic.name, ErrorCode.NONE
    found = session.broker.topics.find_by_id(topic.topic_id)
    return ("", ErrorCode.UNKNOWN_TOPIC_ID) if found is None else (found.name, ErrorCode.NONE)


def _for_version(error: GroupError, version: int) -> ErrorCode:
    """Versions older than KIP-848 do not know a stale member epoch."""
    if error is GroupError.STALE_MEMBER_EPOCH and version < _EPOCH_AWARE_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    return group_code(error)


def _response(
    request: OffsetCommitRequest, refused: dict[tuple[str, bytes, int], ErrorCode], code: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        each.partition_index,
                        code_of_row(refused.get((topic.name, topic.topic_id, each.partition_index)), code),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
