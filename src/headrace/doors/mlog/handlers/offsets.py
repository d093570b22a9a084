"""CommitOffset and FetchOffset: where a consumer goes on in a topic. Commits are durable.

No commit yet is offset 0; no consumer id is `default`. Of several nodes one keeps those of a consumer: whichever is asked passes the
request on.
"""

from typing import Final

from headrace.broker.offsets import CommittedOffset
from headrace.doors.mlog.errors import Refusal
from headrace.doors.mlog.session import CONSUMER_ID_DEFAULT, Session
from headrace.errors import Fault, NotCoordinator, Unavailable
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import ErrorCode

OFFSET_MAX: Final = 2**63 - 1
"""Offsets are signed in the log; no record can ever have a larger one."""


async def commit(request: m.CommitOffsetRequest, session: Session) -> m.Message:
    session.topic(request.Topic)
    if request.Offset > OFFSET_MAX:
        raise Refusal(ErrorCode.COMMIT_OFFSET, f"offset {request.Offset} is beyond {OFFSET_MAX}")
    offset = CommittedOffset(offset=request.Offset, commit_ms=session.broker.clock.now_ms())
    group = request.Id or CONSUMER_ID_DEFAULT
    try:
        await session.broker.forwarding.commit(group, (request.Topic, 0), offset)
    except NotCoordinator:
        raise
    except (Unavailable, Fault) as error:
        raise Refusal(ErrorCode.COMMIT_OFFSET, f"offset was not committed: {error}") from error
    return m.CommitOffsetResponse(Success=True)


async def fetch(request: m.FetchOffsetRequest, session: Session) -> m.Message:
    session.topic(request.Topic)
    found = await session.broker.forwarding.committed(request.Id or CONSUMER_ID_DEFAULT, (request.Topic, 0))
    return m.FetchOffsetResponse(Offset=found or 0)
