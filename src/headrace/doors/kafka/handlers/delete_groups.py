"""DeleteGroups, v0-v2. Only groups without members go, and their offsets with them."""

from headrace.doors.kafka.coordination import coordinator_code, group_code, is_valid_group
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse


async def handle(request: DeleteGroupsRequest, version: int, session: Session) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id, await _delete(group_id, session)) for group_id in request.groups_names]
    return DeleteGroupsResponse(results=results)


async def _delete(group_id: str, session: Session) -> ErrorCode:
    if not is_valid_group(group_id):
        return ErrorCode.INVALID_GROUP_ID
    try:
        return group_code(await session.broker.groups.delete(group_id))
    except HeadraceError as error:
        return coordinator_code(error)
