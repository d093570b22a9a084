"""Our errors in RustLog's codes. The nearest mapped ancestor wins; what nobody foresaw is 500.

Some answers carry details that only the request knows; the functions below build those.
"""

from collections.abc import Mapping
from typing import Any, Final

from headrace import errors
from headrace.doors.error_maps import nearest
from headrace.doors.rustlog.session import Session
from headrace.wire.rustlog.codes import ErrorCode
from headrace.wire.rustlog.messages import Error

AVAILABLE_TOPICS_MAX: Final = 1_000
"""Names listed in a 404: it must fit a frame however many topics there are."""

_CODES: Final[Mapping[type[BaseException], ErrorCode]] = {
    BaseException: ErrorCode.INTERNAL_SERVER_ERROR,
    errors.Rejected: ErrorCode.INVALID_REQUEST,
    errors.TopicNotFound: ErrorCode.TOPIC_NOT_FOUND,
    errors.PartitionNotFound: ErrorCode.PARTITION_NOT_FOUND,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.TooLarge: ErrorCode.RECORD_TOO_LARGE,
    errors.Unavailable: ErrorCode.STORAGE_ERROR,
    errors.Fault: ErrorCode.STORAGE_ERROR,
    errors.StorageFull: ErrorCode.INSUFFICIENT_SPACE,
}


def code_of(error: BaseException) -> ErrorCode:
    return nearest(_CODES, error)


def answer_to(error: Exception, session: Session) -> Error:
    code = code_of(error)
    # A stranger's text may say more than a client should read.
    message = str(error) if isinstance(error, errors.HeadraceError) else "internal server error"
    return Error(code=code, message=message, details=_details(error, session))


def out_of_range(offset: int, start: int, end: int) -> Error:
    """`start` and `end` are those of the log, as far as it can be read."""
    return Error(
        code=ErrorCode.OFFSET_OUT_OF_RANGE,
        message=f"Offset {offset} out of range",
        details={"valid_range": {"start": start, "end": end}, "high_watermark": end},
    )


def record_too_large(offset: int, size: int) -> Error:
    """A stored record that no frame can carry: it came through another door."""
    return Error(
        code=ErrorCode.RECORD_TOO_LARGE,
        message=f"Record at offset {offset} is too large for a frame",
        details={"offset": offset, "size": size, "next_offset": offset + 1},
    )


def refused(message: str, reason: str) -> Error:
    """Wrong by the protocol's own rules; `reason` is for programs."""
    return Error(code=ErrorCode.INVALID_REQUEST, message=message, details={"reason": reason})


# Any: details are JSON whose shape depends on the code.
def _details(error: Exception, session: Session) -> dict[str, Any] | None:
    match error:
        case errors.TopicNotFound():
            return {"available_topics": [topic.name for topic in session.visible_topics()][:AVAILABLE_TOPICS_MAX]}
        case errors.NotLeader(broker=broker):
            # One node alone has nobody else to name.
            return {"leader": broker or None}
        case _:
            return None
