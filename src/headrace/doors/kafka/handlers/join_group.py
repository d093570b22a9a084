"""JoinGroup, v0-v9.

- v0 has no rebalance timeout: the session timeout stands in (trap 32).
- From v4 a new dynamic member is told its id and has to return with it (KIP-394, trap 33).
- Only the leader receives the members; from v9 it may be told to skip assigning (KIP-814).
"""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic.events import Join, JoinReply, Protocol
from headrace.broker.groups.outcome import GroupError
from headrace.chance import new_uuid
from headrace.doors.kafka.coordination import client_host, group_code, is_valid_group, respond
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.join_group_request import JoinGroupRequest
from headrace.wire.kafka.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember

_MEMBER_ID_REQUIRED_FROM: Final = 4
_NULLABLE_PROTOCOL_FROM: Final = 7
_SKIP_ASSIGNMENT_FROM: Final = 9


def handle(request: JoinGroupRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return _refused(ErrorCode.INVALID_GROUP_ID, request, version)
    client_id = session.client_id or ""
    event = Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=client_host(session),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(name=each.name, metadata=each.metadata) for each in request.protocols),
        must_know_member_id=version >= _MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
        spare_member_id=f"{request.group_instance_id or client_id}-{new_uuid(session.broker.chance)}",
    )
    return respond(
        lambda: session.broker.groups.join(request.group_id, event),
        lambda reply: _response(reply, version),
        lambda code: _refused(code, request, version),
    )


def _response(reply: JoinReply, version: int) -> JoinGroupResponse:
    is_refused = reply.error is not GroupError.NONE
    return JoinGroupResponse(
        error_code=group_code(reply.error),
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=_protocol_name(None if is_refused else reply.protocol_name, version),
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata) for each in reply.members],
    )


def _refused(code: ErrorCode, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=_protocol_name(None, version), member_id=request.member_id)


def _protocol_name(name: str | None, version: int) -> str | None:
    return "" if name is None and version < _NULLABLE_PROTOCOL_FROM else name
