"""TxnOffsetCommit, v0-v4. From v3 the member says who it is, so that a zombie of the group is fenced (KIP-447)."""

from headrace.broker.deferred import Deferred
from headrace.broker.groups.outcome import GroupError
from headrace.broker.groups.service import Committer
from headrace.broker.offsets import CommittedOffset, Place
from headrace.broker.transactions.events import Identity, TransactionError
from headrace.doors.kafka.coordination import group_code, is_valid_group, respond, transaction_code
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from headrace.wire.kafka.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(request: TxnOffsetCommitRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return _response(request, ErrorCode.INVALID_GROUP_ID, set())
    producer = Identity(producer_id=request.producer_id, epoch=request.producer_epoch)
    fenced = session.broker.transactions.check_producer(request.transactional_id, producer)
    if fenced is not TransactionError.NONE:
        return _response(request, transaction_code(fenced, knows_fencing=False), set())
    offsets: dict[Place, CommittedOffset] = {}
    unknown: set[Place] = set()
    for topic in request.topics:
        found = session.broker.topics.find(topic.name)
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            if found is None or not 0 <= each.partition_index < len(found.partitions):
                unknown.add(place)
                continue
            offsets[place] = CommittedOffset(
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=each.committed_metadata or "",
            )
    committer = Committer(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    return respond(
        session.broker.groups.commit_in_transaction(
            request.group_id,
            offsets,
            committer,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        ),
        lambda error: _response(request, _group_code(error), unknown),
        lambda code: _response(request, code, unknown),
    )


def _group_code(error: GroupError) -> ErrorCode:
    """Transactional clients know generations, not member epochs."""
    return ErrorCode.ILLEGAL_GENERATION if error is GroupError.STALE_MEMBER_EPOCH else group_code(error)


def _response(request: TxnOffsetCommitRequest, code: ErrorCode, unknown: set[Place]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        each.partition_index,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (topic.name, each.partition_index) in unknown else code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
