"""AlterClientQuotas, v0-v1: each entity is changed, or refused, by itself. `controller_mutation_rate` is refused: nothing here keeps it."""

from headrace.broker.access.quotas import Entity, Limit, check_entity, check_limit
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.handlers.describe_client_quotas import TYPES
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, Invalid
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages import alter_client_quotas_request as asked
from headrace.wire.kafka.messages.alter_client_quotas_request import AlterClientQuotasRequest
from headrace.wire.kafka.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData


async def handle(request: AlterClientQuotasRequest, version: int, session: Session) -> AlterClientQuotasResponse:
    rows = [await _alter(entry, session, is_trial=request.validate_only) for entry in request.entries]
    return AlterClientQuotasResponse(entries=rows)


async def _alter(entry: asked.EntryData, session: Session, *, is_trial: bool) -> EntryData:
    try:
        entity = _entity(entry)
        change = _change(entity, entry)
        if not is_trial:
            await session.broker.access.change_limits(entity, change, session.guard)
    except Invalid as error:
        return _row(entry, ErrorCode.INVALID_REQUEST, str(error))
    except HeadraceError as error:
        return _row(entry, code_of(error), str(error))
    return _row(entry, ErrorCode.NONE, None)


def _row(entry: asked.EntryData, code: ErrorCode, message: str | None) -> EntryData:
    return EntryData(code, message, [EntityData(each.entity_type, each.entity_name) for each in entry.entity])


def _entity(entry: asked.EntryData) -> Entity:
    """Raises `Invalid`, in Kafka's words."""
    named: dict[int, str] = {}
    for each in entry.entity:
        if each.entity_type not in TYPES:
            raise Invalid(f"Unhandled client quota entity type: {each.entity_type}")
        if TYPES[each.entity_type] in named:
            raise Invalid(f"Invalid client quota entity, contains duplicate entity type: {each.entity_type}")
        if each.entity_name == "":
            raise Invalid(f"Empty {each.entity_type} not supported")
        named[TYPES[each.entity_type]] = each.entity_name or ""
    return check_entity(Entity(named.get(0), named.get(1), named.get(2)))


def _change(entity: Entity, entry: asked.EntryData) -> dict[Limit, float | None]:
    change: dict[Limit, float | None] = {}
    for op in entry.ops:
        try:
            limit = Limit(op.key)
        except ValueError as error:
            if op.remove:
                continue  # What nobody can have set is not there, which is what was asked for.
            raise Invalid(f"Invalid configuration key {op.key}") from error
        if not op.remove:
            check_limit(entity, limit, op.value)
        change[limit] = None if op.remove else op.value
    return change
