"""DescribeGroups, v0-v6. An unknown group is "Dead" without an error up to v5, and not found from v6 (trap 49)."""

from typing import Final

from headrace.broker.access.words import Resource
from headrace.broker.groups.classic.cycle import GroupState
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.doors.kafka.coordination import coordinator_code
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, NotCoordinator
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

_NOT_FOUND_FROM: Final = 6


def handle(request: DescribeGroupsRequest, version: int, session: Session) -> DescribeGroupsResponse:
    groups = [_describe(group_id, version, session) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = session.guard.operations(Resource.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, version: int, session: Session) -> DescribedGroup:
    try:
        group = session.broker.groups.find(group_id)
    except (CoordinatorLoading, NotCoordinator) as error:
        return DescribedGroup(error_code=coordinator_code(error), group_id=group_id)
    if not isinstance(group, ClassicGroup):
        is_told = version >= _NOT_FOUND_FROM
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if is_told else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
        )
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                # That of the last generation, until the leader of the next one has spoken.
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
