"""TxnOffsetCommit, v0-v5. From v3 the member says who it is, so that a zombie of the group is fenced (KIP-447).

Offsets that AddOffsetsToTxn has not added to an open transaction are refused before anything else is looked at (KIP-890):
TRANSACTION_ABORTABLE from v4, INVALID_TXN_STATE before. From v5 they are added by this request. The transaction's coordinator
may be another broker than the group's: then it is asked first.
"""

from collections.abc import Awaitable
from typing import Final

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer
from headrace.broker.offsets import CommittedOffset, Place
from headrace.broker.transactions.events import Identity, TransactionError
from headrace.doors.kafka.coordination import coordinator_code, group_code, is_valid_group, respond, transaction_code
from headrace.doors.kafka.offset_rows import check_row, code_of_row, committed_offset
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_ABORTABLE_FROM: Final = 4
_ADDING_FROM: Final = 5


class _Rows(msgspec.Struct):
    """What of a request can be committed, and what cannot."""

    offsets: dict[Place, CommittedOffset]
    refused: dict[Place, ErrorCode]


def handle(
    request: TxnOffsetCommitRequest, version: int, session: Session
) -> Message | Deferred[Message] | Awaitable[Message]:
    rows = _rows(request, session)
    if not rows.offsets and set(rows.refused.values()) <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
        # Nothing is left to commit, and so nothing to ask a coordinator for.
        return _response(request, rows.refused, ErrorCode.NONE)
    if not is_valid_group(request.group_id):
        return _response(request, rows.refused, ErrorCode.INVALID_GROUP_ID)
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    is_adding = version >= _ADDING_FROM
    try:
        # Before the transaction is looked at: who is not the group's coordinator cannot tell what is wrong with it.
        session.broker.groups.require_here(request.group_id)
        place = session.broker.transactions.offsets_of(request.group_id)
        to_ask_for = session.broker.participation.to_ask_for(
            request.transactional_id, producer, frozenset({place}), is_adding=is_adding
        )
    except HeadraceError as error:
        return _response(request, rows.refused, coordinator_code(error))
    if to_ask_for:
        return _ask_and_commit(request, version, producer, rows, session)
    return _commit(request, version, producer, rows, session)


def _rows(request: TxnOffsetCommitRequest, session: Session) -> _Rows:
    rows = _Rows({}, {})
    for topic in request.topics:
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            code = check_row(topic.name, each, session)
            if code:
                rows.refused[place] = code
            else:
                rows.offsets[place] = committed_offset(each)
    return rows


async def _ask_and_commit(
    request: TxnOffsetCommitRequest, version: int, producer: Identity, rows: _Rows, session: Session
) -> Message:
    try:
        # There are offsets of the group in this partition, once the topic is there: it may not be yet.
        await session.broker.groups.leader_of(request.group_id)
    except HeadraceError as failure:
        return _response(request, rows.refused, coordinator_code(failure))
    place = session.broker.transactions.offsets_of(request.group_id)
    error = await session.broker.participation.ask(
        request.transactional_id, producer, frozenset({place}), is_adding=version >= _ADDING_FROM
    )
    if error is not TransactionError.NONE:
        return _response(request, rows.refused, transaction_code(error, knows_fencing=False))
    answer = _commit(request, version, producer, rows, session)
    return answer if isinstance(answer, Message) else await answer


def _commit(
    request: TxnOffsetCommitRequest, version: int, producer: Identity, rows: _Rows, session: Session
) -> Message | Deferred[Message]:
    try:
        error = session.broker.participation.check_offsets(request.transactional_id, producer, request.group_id)
    except HeadraceError as failure:
        return _response(request, rows.refused, coordinator_code(failure))
    if error is TransactionError.INVALID_TXN_STATE and version >= _KNOWS_ABORTABLE_FROM:
        return _response(request, rows.refused, ErrorCode.TRANSACTION_ABORTABLE)
    if error is not TransactionError.NONE:
        return _response(request, rows.refused, transaction_code(error, knows_fencing=False))
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    return respond(
        lambda: session.broker.groups.commit_in_transaction(
            request.group_id,
            rows.offsets,
            committer,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        ),
        lambda error: _response(request, rows.refused, _group_code(error)),
        lambda code: _response(request, rows.refused, code),
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
                        each.partition_index, code_of_row(refused.get((topic.name, each.partition_index)), code)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
