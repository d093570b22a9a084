"""LeaveGroup, v0-v5. From v3 several members leave at once, each with an answer of its own (KIP-345)."""

from typing import Final

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic.events import Departure, DepartureReply, Leave
from headrace.doors.kafka.coordination import group_code, is_valid_group, respond
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from headrace.wire.kafka.messages.leave_group_response import LeaveGroupResponse, MemberResponse

_BATCHED_FROM: Final = 3


def handle(request: LeaveGroupRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if version < _BATCHED_FROM:
        departures: tuple[Departure, ...] = (Departure(member_id=request.member_id),)
    else:
        departures = tuple(
            Departure(member_id=each.member_id, instance_id=each.group_instance_id) for each in request.members
        )
    return respond(
        lambda: session.broker.groups.leave(request.group_id, Leave(departures=departures)),
        lambda replies: _response(replies, version),
        lambda code: LeaveGroupResponse(error_code=code),
    )


def _response(replies: tuple[DepartureReply, ...], version: int) -> LeaveGroupResponse:
    if version < _BATCHED_FROM:
        return LeaveGroupResponse(error_code=group_code(replies[0].error))
    members = [MemberResponse(each.member_id, each.instance_id, group_code(each.error)) for each in replies]
    return LeaveGroupResponse(members=members)
