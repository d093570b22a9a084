"""FindCoordinator, v0-v5: the leader of the partition that holds the key. On a node that is alone, always this broker."""

from collections.abc import Sequence
from typing import Final

from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

_BATCHED_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1


async def handle(request: FindCoordinatorRequest, version: int, session: Session) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= _BATCHED_FROM else [request.key]
    found = await _find(keys, request.key_type, session)
    if version >= _BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(
        error_code=found[0].error_code,
        error_message=found[0].error_message,
        node_id=found[0].node_id,
        host=found[0].host,
        port=found[0].port,
    )


async def _find(keys: Sequence[str], key_type: int, session: Session) -> list[Coordinator]:
    if key_type not in (_GROUP, _TRANSACTION):
        return [_nobody(key, ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}") for key in keys]
    identity = session.broker.identity
    if not identity.registered():
        return [Coordinator(key, identity.broker_id, *session.advertised) for key in keys]
    try:
        coordinators = session.broker.groups if key_type == _GROUP else session.broker.transactions
        leaders = [await coordinators.leader_of(key) for key in keys]
    except HeadraceError as error:
        return [_nobody(key, code_of(error), str(error)) for key in keys]
    members = {each.number: each for each in identity.members(session.listener, session.advertised)}
    found = []
    for key, leader in zip(keys, leaders, strict=True):
        member = members.get(identity.number_of(leader))
        if member is None:
            found.append(_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"it is {leader}, which is not there"))
        else:
            found.append(Coordinator(key, member.number, member.host, member.port))
    return found


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
