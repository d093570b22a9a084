"""Changes through the API as the audit keeps them: who asked for what, and what was before and after. Without secrets, and durable
before the answer."""

from typing import Any, Final

import msgspec

from headrace.admin.api.calls import Call
from headrace.admin.api.table import Route
from headrace.broker.access.words import parse_principal

SECRETS: Final = frozenset({"password"})
"""Fields of requests that no event has."""
NOTED_BELOW: Final = frozenset(
    {
        "CreateUser",
        "DeleteUser",
        "SetPassword",
        "CreateToken",
        "RevokeToken",
        "CreateAcl",
        "DeleteAcl",
        "SetQuota",
        "DeleteQuota",
    }
)
"""What access keeps itself, for every door."""
NO_CHANGES: Final = frozenset({"ProduceRecord", "SearchTopic"})
"""Records are not the audit's business, and a search changes nothing."""


def is_noted(route: Route, request: Any) -> bool:  # Any: the route's own type
    is_change = route.is_change and route.name not in NOTED_BELOW | NO_CHANGES
    return is_change and not getattr(request, "dry_run", False)


async def note_change(route: Route, request: Any, call: Call, *, error: str = "") -> None:  # Any: as above
    audit = call.broker.access.audit
    if audit is None:
        return
    asked = {name: value for name, value in msgspec.to_builtins(request).items() if name not in SECRETS}
    what = {
        "change": route.name,
        "request": asked,
        **call.change,
    }
    if error:
        what["error"] = error
    audit.administered(parse_principal(call.principal.name), call.principal.host, what)
    await audit.settled()
