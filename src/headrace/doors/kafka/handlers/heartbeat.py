"""Heartbeat, v0-v4. While the coordinator loads, members are told that all is well: it cannot know better yet."""

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic.events import Heartbeat
from headrace.doors.kafka.coordination import group_code, is_valid_group, respond
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.messages.heartbeat_response import HeartbeatResponse


def handle(request: HeartbeatRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    event = Heartbeat(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    return respond(
        lambda: session.broker.groups.heartbeat(request.group_id, event),
        lambda error: HeartbeatResponse(error_code=group_code(error)),
        lambda code: HeartbeatResponse(error_code=_blindly(code)),
    )


def _blindly(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
