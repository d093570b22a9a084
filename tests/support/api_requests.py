"""A request that fits, for any route of the administrative API."""

from typing import Any

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
