"""Quotas: how much a user, a client id or an address may do in a second."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.paging import PageRequest, page_of
from headrace.broker.access.quotas import DEFAULT, Entity, Limit, Limits, check_entity, check_limit
from headrace.errors import Invalid, ResourceNotFound

EVERYBODY = "*"
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Amount = Annotated[float, Meta(gt=0)]


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """Names are None where the quota does not speak of them, and `*` for whoever has none of their own."""

    user: str | None
    client: str | None
    ip: str | None
    produce_bytes: float | None
    """In a second, as are the others."""
    fetch_bytes: float | None
    request_percentage: float | None
    """Of the event loop's time."""
    connections: float | None


class ListQuotas(PageRequest, frozen=True):
    pass


class QuotaList(msgspec.Struct, frozen=True, kw_only=True):
    quotas: list[QuotaRow]
    next_page_token: str = ""
    total: int


class SetQuota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits that are not given stay as they are."""

    user: Name | None = None
    """`*` is whoever has none of their own; so it is for the others."""
    client: Name | None = None
    ip: Name | None = None
    produce_bytes: Amount | None = None
    fetch_bytes: Amount | None = None
    request_percentage: Amount | None = None
    connections: Amount | None = None
    dry_run: bool = False


class DeleteQuota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All limits of somebody."""

    user: Name | None = None
    client: Name | None = None
    ip: Name | None = None
    dry_run: bool = False


class QuotaChanged(msgspec.Struct, frozen=True, kw_only=True):
    quota: QuotaRow
    is_dry_run: bool = False


async def list_quotas(request: ListQuotas, call: Call) -> QuotaList:
    page = await page_of(
        list(call.broker.access.quotas),
        request,
        turns=call.turns,
        name=lambda each: " ".join(f"{kind} {name or EVERYBODY}" for kind, name in _names(each[0])),
        orders={},
    )
    return QuotaList(
        quotas=[_row(*each) async for each in call.turns.over(page.items)],
        next_page_token=page.next_token,
        total=page.total,
    )


async def set_quota(request: SetQuota, call: Call) -> QuotaChanged:
    entity = _entity_of(request)
    wanted = {
        Limit.PRODUCE: request.produce_bytes,
        Limit.FETCH: request.fetch_bytes,
        Limit.REQUESTS: request.request_percentage,
        Limit.CONNECTIONS: request.connections,
    }
    change: dict[Limit, float | None] = {limit: value for limit, value in wanted.items() if value is not None}
    if not change:
        raise Invalid("which limit? produce_bytes, fetch_bytes, request_percentage or connections")
    for limit, value in change.items():
        assert value is not None
        check_limit(entity, limit, value)
    quotas = call.broker.access.quotas
    after = {**quotas.limits(entity), **{limit: value for limit, value in change.items() if value is not None}}
    if not request.dry_run:
        await call.broker.access.change_limits(entity, change, call.author)
        after = dict(quotas.limits(entity))
    return QuotaChanged(quota=_row(entity, after), is_dry_run=request.dry_run)


async def delete_quota(request: DeleteQuota, call: Call) -> QuotaChanged:
    entity = _entity_of(request)
    before = call.broker.access.quotas.limits(entity)
    if not before:
        raise ResourceNotFound("they have no quota of their own")
    if not request.dry_run:
        await call.broker.access.change_limits(entity, dict.fromkeys(Limit), call.author)
    return QuotaChanged(quota=_row(entity, before), is_dry_run=request.dry_run)


def _entity_of(request: SetQuota | DeleteQuota) -> Entity:
    named = (DEFAULT if name == EVERYBODY else name for name in (request.user, request.client, request.ip))
    return check_entity(Entity(*named))


def _names(entity: Entity) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name in entity._asdict().items() if name is not None]


def _row(entity: Entity, limits: Limits) -> QuotaRow:
    user, client, ip = (EVERYBODY if name == DEFAULT else name for name in entity)
    return QuotaRow(
        user=user,
        client=client,
        ip=ip,
        produce_bytes=limits.get(Limit.PRODUCE),
        fetch_bytes=limits.get(Limit.FETCH),
        request_percentage=limits.get(Limit.REQUESTS),
        connections=limits.get(Limit.CONNECTIONS),
    )
