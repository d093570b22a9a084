"""ListGroups, v0-v5. Filters by state from v4, by type from v5; neither minds upper or lower case."""

from headrace.doors.kafka.coordination import coordinator_code
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading
from headrace.wire.kafka.messages.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.messages.list_groups_response import ListedGroup, ListGroupsResponse


def handle(request: ListGroupsRequest, version: int, session: Session) -> ListGroupsResponse:
    states = {each.lower() for each in request.states_filter}
    kinds = {each.lower() for each in request.types_filter}
    try:
        listings = session.broker.groups.listings()
    except CoordinatorLoading as error:
        return ListGroupsResponse(error_code=coordinator_code(error))
    return ListGroupsResponse(
        groups=[
            ListedGroup(each.group_id, each.protocol_type, each.state, each.kind)
            for each in listings
            if (not states or each.state.lower() in states) and (not kinds or each.kind in kinds)
        ]
    )
