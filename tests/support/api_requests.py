"""A request that fits, for any route of the administrative API."""

import re
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from headrace.admin.api.table import Route

_NUMBERS = {"partition": 0, "offset": 0, "broker": 0, "before": 0, "count": 1}
_WORDS = {"target": "earliest", "operation": "read"}


def fields_for(route: Route, name: str = "x") -> dict[str, Any]:  # Any: as JSON has it
    """What the route cannot do without; whatever has a name is called `name`."""
    values: dict[str, Any] = {}  # Any: as above
    for field in msgspec.structs.fields(route.request):
        if field.required:
            words = _WORDS if field.name not in route.names_in_path else {}
            values[field.name] = _NUMBERS.get(field.name, words.get(field.name, name))
    return values


def tried_fields(route: Route) -> dict[str, Any]:  # Any: as above
    """The same, changing nothing where the route has a dry run."""
    can_try = "dry_run" in {field.name for field in msgspec.structs.fields(route.request)}
    return {**fields_for(route), **({"dry_run": True} if can_try else {})}


def ask_rest(route: Route, api: httpx.Client) -> httpx.Response:
    """`api` has the prefix in its base."""
    fields = tried_fields(route)
    path = re.sub(r"{(\w+)}", lambda found: quote(str(fields.pop(found[1])), safe=""), route.path)
    query: dict[str, Any] = {"dry_run": "true"} if fields.pop("dry_run", False) else {}  # Any: as httpx takes them
    if route.has_body:
        return api.request(route.method, path, params=query, json=fields)
    return api.request(route.method, path, params={**query, **fields})
