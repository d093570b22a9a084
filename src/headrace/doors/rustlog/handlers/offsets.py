"""OffsetCommit and OffsetFetch: where a group goes on, per topic and partition.

- A commit is the next offset to process; a later one replaces it, whatever its value.
- Commits of this door are volatile unless the settings say otherwise: the protocol loses them on restart.
- A commit for what does not exist is `success: false`; a fetch of what was never committed is null.
- Of several brokers one looks after a group: whoever is asked passes the request on.
"""

from typing import Final

from headrace.broker.offsets import CommittedOffset
from headrace.doors.rustlog.errors import refused
from headrace.doors.rustlog.session import Session
from headrace.errors import NotFound
from headrace.wire.rustlog import messages as m

OFFSET_MAX: Final = 2**63 - 1
"""Offsets are signed in the log; no record can ever have a larger one."""


async def commit(request: m.OffsetCommit, session: Session) -> m.Response:
    if request.offset > OFFSET_MAX:
        return refused(f"offset {request.offset} is beyond {OFFSET_MAX}", "invalid_offset")
    try:
        session.broker.topics.partition(request.topic, request.partition)
    except NotFound:
        return m.OffsetCommitResponse(success=False)
    offset = CommittedOffset(offset=request.offset, commit_ms=session.broker.clock.now_ms())
    await session.broker.forwarding.commit(
        request.group,
        (request.topic, request.partition),
        offset,
        is_volatile=not session.settings.offsets_durable,
    )
    session.positions.note(request.group, request.topic, request.partition, request.offset)
    return m.OffsetCommitResponse(success=True)


async def fetch(request: m.OffsetFetch, session: Session) -> m.Response:
    return m.OffsetFetchResponse(
        offset=await session.broker.forwarding.committed(request.group, (request.topic, request.partition))
    )
