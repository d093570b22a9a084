"""SyncGroup, v0-v5. A member gets its leader's bytes exactly as they were given (trap 34).

A coordinator that loads has lost the rebalance that was under way: the member joins again, and waits there. Clients do
not expect to hear of loading here.
"""

from headrace.broker.deferred import Deferred
from headrace.broker.groups.classic.events import Sync
from headrace.doors.kafka.coordination import group_code, is_valid_group, respond
from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.sync_group_request import SyncGroupRequest
from headrace.wire.kafka.messages.sync_group_response import SyncGroupResponse


def handle(request: SyncGroupRequest, version: int, session: Session) -> Message | Deferred[Message]:
    if not is_valid_group(request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    event = Sync(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    return respond(
        lambda: session.broker.groups.sync(request.group_id, event),
        lambda reply: SyncGroupResponse(
            error_code=group_code(reply.error),
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignment=reply.assignment,
        ),
        lambda code: SyncGroupResponse(error_code=_or_join_again(code)),
    )


def _or_join_again(code: ErrorCode) -> ErrorCode:
    return ErrorCode.REBALANCE_IN_PROGRESS if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
