"""TxnOffsetCommit, v0-v4. From v3 the member says who it is, so that a zombie of the group is fenced (KIP-447).

Offsets that AddOffsetsToTxn has not added to an open transaction are refused before anything else is looked at (KIP-890):
TRANSACTION_ABORTABLE from v4, INVALID_TXN_STATE before.
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer
from headrace.broker.offsets import CommittedOffset, Place
from headrace.broker.transactions.events import Identity, TransactionError
from headrace.doors.kafka.coordination import coordinator_code, group_code, is_valid_group, respond, transaction_code
from headrace.doors.kafka.offset_rows import check_row, committed_offset
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_ABORTABLE_FROM: Final = 4


def handle(request: TxnOffsetCommitRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return _response(request, {}, ErrorCode.INVALID_GROUP_ID)
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    try:
        error = session.broker.transactions.check_offsets(request.transactional_id, producer, request.group_id)
    except CoordinatorLoading as loading:
        return _response(request, {}, coordinator_code(loading))
    if error is TransactionError.INVALID_TXN_STATE and version >= _KNOWS_ABORTABLE_FROM:
        return _response(request, {}, ErrorCode.TRANSACTION_ABORTABLE)
    if error is not TransactionError.NONE:
        return _response(request, {}, transaction_code(error, knows_fencing=False))
    offsets: dict[Place, CommittedOffset] = {}
    refused: dict[Place, ErrorCode] = {}
    for topic in request.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            code = check_row(topic.name, each, session)
            if code:
                refused[place] = code
            else:
                offsets[place] = committed_offset(each)
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    return respond(
        lambda: session.broker.groups.commit_in_transaction(
            request.group_id,
            offsets,
            committer,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        ),
        lambda error: _response(request, refused, _group_code(error)),
        lambda code: _response(request, refused, code),
    )


def _group_code(error: GroupError) -> ErrorCode:
    """Transactional clients know generations, not member epochs."""
    return ErrorCode.ILLEGAL_GENERATION if error is GroupError.STALE_MEMBER_EPOCH else group_code(error)


def _response(
    request: TxnOffsetCommitRequest, refused: dict[Place, ErrorCode], code: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        each.partition_index, refused.get((topic.name, each.partition_index), code)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
