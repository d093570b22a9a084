"""OffsetCommit and OffsetFetch: where a group goes on, per topic and partition.

- A commit is the next offset to process; a later one replaces it, whatever its value.
- Commits of this door are volatile unless the settings say otherwise: the protocol loses them on restart.
- A commit for what does not exist is `success: false`; a fetch of what was never committed is null.
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.offsets import CommittedOffset
from headrace.doors.rustlog.errors import answer_to, refused
from headrace.doors.rustlog.session import Session
from headrace.errors import HeadraceError, NotFound
from headrace.wire.rustlog import messages as m

OFFSET_MAX: Final = 2**63 - 1
"""Offsets are signed in the log; no record can ever have a larger one."""


def commit(request: m.OffsetCommit, session: Session) -> m.Response | Deferred[m.Response]:
    if request.offset > OFFSET_MAX:
        return refused(f"offset {request.offset} is beyond {OFFSET_MAX}", "invalid_offset")
    try:
        session.broker.topics.partition(request.topic, request.partition)
    except NotFound:
        return m.OffsetCommitResponse(success=False)
    answer: Deferred[m.Response] = Deferred()

    def finish(outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except HeadraceError as error:
            answer.resolve(answer_to(error, session))
            return
        session.positions.note(request.group, request.topic, request.partition, request.offset)
        answer.resolve(m.OffsetCommitResponse(success=True))

    offset = CommittedOffset(offset=request.offset, commit_ms=session.broker.clock.now_ms())
    session.broker.offsets.commit(
        request.group,
        {(request.topic, request.partition): offset},
        is_volatile=not session.settings.offsets_durable,
    ).then(finish)
    return answer


def fetch(request: m.OffsetFetch, session: Session) -> m.Response:
    found = session.broker.offsets.committed(request.group, request.topic, request.partition)
    return m.OffsetFetchResponse(offset=None if found is None else found.offset)
