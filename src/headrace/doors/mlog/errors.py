"""Our errors in mlog's codes. The nearest mapped ancestor wins; what nobody foresaw is 0, Unknown."""

from collections.abc import Mapping
from typing import Final

from headrace import errors
from headrace.doors.error_maps import nearest
from headrace.wire.mlog.codes import ErrorCode
from headrace.wire.mlog.messages import RPCErrorResponse

_CODES: Final[Mapping[type[BaseException], ErrorCode]] = {
    BaseException: ErrorCode.UNKNOWN,
    errors.TopicNotFound: ErrorCode.TOPIC_NOT_FOUND,
    errors.PartitionNotFound: ErrorCode.TOPIC_NOT_FOUND,
    errors.AlreadyExists: ErrorCode.TOPIC_EXISTS,
    errors.OffsetOutOfRange: ErrorCode.READ_OFFSET,
    errors.NotLeader: ErrorCode.NOT_TOPIC_LEADER,
    errors.NotCoordinator: ErrorCode.NOT_TOPIC_LEADER,
    errors.TimedOut: ErrorCode.TIMEOUT_CATCH_UP,
}


class Refusal(errors.Rejected):
    """Wrong by mlog's own rules, with the code it has for that."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> ErrorCode:
    if isinstance(error, Refusal):
        return error.code
    return nearest(_CODES, error)


def answer_to(error: Exception) -> RPCErrorResponse:
    # A stranger's text may say more than a client should read.
    message = str(error) if isinstance(error, errors.HeadraceError) else "internal error"
    return RPCErrorResponse(code=code_of(error), message=message)
