"""FindCoordinator, v0-v5. One node coordinates everything, so the answer is always this broker."""

from typing import Final

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

_GROUP: Final = 0
_TRANSACTION: Final = 1
_BATCHED_FROM: Final = 4


def handle(request: FindCoordinatorRequest, version: int, session: Session) -> FindCoordinatorResponse:
    if version >= _BATCHED_FROM:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[_find(key, request.key_type, session) for key in keys])
    found = _find(request.key, request.key_type, session)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key: str, key_type: int, session: Session) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"unknown key type {key_type}",
        )
    host, port = session.advertised
    return Coordinator(key=key, node_id=session.broker.identity.broker_id, host=host, port=port)
