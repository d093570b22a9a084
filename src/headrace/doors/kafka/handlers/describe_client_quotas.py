"""DescribeClientQuotas, v0-v1: the limits of users, client ids, both, and addresses (KIP-546, KIP-612)."""

from typing import Final

from headrace.broker.access.quotas import DEFAULT, Entity
from headrace.doors.kafka.session import Session
from headrace.errors import Invalid, UnsupportedOperation
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from headrace.wire.kafka.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

TYPES: Final = {"user": 0, "client-id": 1, "ip": 2}
"""Kafka's names, and the place of each in an `Entity`."""
_EXACT, _DEFAULT, _ANY = range(3)


def handle(request: DescribeClientQuotasRequest, version: int, session: Session) -> DescribeClientQuotasResponse:
    try:
        wanted = _wanted(request.components)
    except UnsupportedOperation as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=str(error), entries=None
        )
    except Invalid as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None
        )
    entries = [
        EntryData(
            [EntityData(name, entity[at] or None) for name, at in TYPES.items() if entity[at] is not None],
            [ValueData(limit.value, value) for limit, value in limits.items()],
        )
        for entity, limits in session.broker.access.quotas
        if _is_wanted(entity, wanted, is_strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _wanted(components: list[ComponentData]) -> dict[int, ComponentData]:
    """By the place in an `Entity`; raises `Invalid`, in Kafka's words."""
    wanted: dict[int, ComponentData] = {}
    for each in components:
        if not each.entity_type:
            raise Invalid("Invalid empty entity type.")
        if each.entity_type not in TYPES:
            raise UnsupportedOperation(f"Custom entity type '{each.entity_type}' not supported")
        if TYPES[each.entity_type] in wanted:
            raise Invalid(f"Entity type {each.entity_type} cannot appear more than once in the filter.")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise Invalid(f"Unknown match type {each.match_type}")
        if each.match_type == _EXACT and each.match is None:
            raise Invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type == _DEFAULT and each.match is not None:
            raise Invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        if each.match_type == _ANY and each.match is not None:
            raise Invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        wanted[TYPES[each.entity_type]] = each
    if TYPES["ip"] in wanted and len(wanted) > 1:
        raise Invalid(
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component."
        )
    return wanted


def _is_wanted(entity: Entity, wanted: dict[int, ComponentData], *, is_strict: bool) -> bool:
    for at, component in wanted.items():
        name = entity[at]
        if name is None:
            return False
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name != DEFAULT:
            return False
    return not is_strict or len(wanted) == sum(name is not None for name in entity)
