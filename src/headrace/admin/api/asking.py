"""One call of the API, whoever brings it: REST, gRPC and the console all come through here."""

from typing import Any

import msgspec

from headrace.admin.api.calls import Call, Parts
from headrace.admin.api.noting import is_noted, note_change
from headrace.admin.api.table import BY_NAME, Route
from headrace.admin.rights import CLUSTER_NAME, Principal, Resource
from headrace.broker.slices import Turns
from headrace.errors import Denied, Fault, Invalid, Unavailable


async def ask(
    route: Route, request: Any, principal: Principal, parts: Parts, turns: Turns | None = None
) -> Any:  # Any: the route's own types
    """The route's response; raises what its handler raises, and `Denied` before anything has happened. Who asks several things in
    a row has one budget for all of them."""
    _check_right(route, request, principal, parts)
    call = Call(parts, principal, turns or Turns())
    if not is_noted(route, request):
        return await route.handler(request, call)
    try:
        found = await route.handler(request, call)
    except (Unavailable, Fault) as error:
        # It may have happened all the same.
        await note_change(route, request, call, error=type(error).__name__)
        raise
    await note_change(route, request, call)
    return found


async def ask_by_name(
    name: str, fields: dict[str, Any], principal: Principal, parts: Parts, turns: Turns | None = None
) -> Any:  # Any: as above
    """The same for who has fields, as JSON would have them, and no request yet; `Invalid` for what does not fit."""
    route = BY_NAME[name]
    try:
        request = msgspec.convert(fields, route.request)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from error
    return await ask(route, request, principal, parts, turns)


def _check_right(route: Route, request: Any, principal: Principal, parts: Parts) -> None:  # Any: as above
    right = route.right
    if right.resource is not Resource.CLUSTER and right.field is None:
        return  # The handler leaves out what the caller may not see.
    name = CLUSTER_NAME if right.field is None else getattr(request, right.field)
    if not parts.gate.may(principal, right.operation, right.resource, name):
        raise Denied(f"{principal.name} may not {right.operation.value} {right.resource.value} {name!r}")
