"""What OffsetCommit and TxnOffsetCommit have in common: which rows of a request can be committed, and as what."""

from typing import Protocol

from headrace.broker.offsets import CommittedOffset
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode


class OffsetRow(Protocol):
    """One partition of either request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def check_row(topic_name: str, row: OffsetRow, session: Session) -> ErrorCode:
    if not session.broker.topics.has_partition(topic_name, row.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    note = row.committed_metadata or ""
    if len(note.encode()) > session.broker.groups.settings.offset_metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def code_of_row(refused: ErrorCode | None, group: ErrorCode) -> ErrorCode:
    """A topic that is not there is told first, then what is wrong with the group, then what is wrong with the row."""
    if refused is None:
        return group
    return group if refused is ErrorCode.OFFSET_METADATA_TOO_LARGE and group else refused


def committed_offset(row: OffsetRow) -> CommittedOffset:
    return CommittedOffset(
        offset=row.committed_offset,
        leader_epoch=row.committed_leader_epoch,
        metadata=row.committed_metadata or "",
    )
