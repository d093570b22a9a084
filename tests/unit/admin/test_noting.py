"""What of a request the audit keeps: no secret."""

import msgspec

from headrace.admin.api.noting import NO_CHANGES, NOTED_BELOW, SECRETS
from headrace.admin.api.table import BY_NAME, ROUTES


def test_every_field_that_is_never_shown_is_known_as_a_secret() -> None:
    secret = {
        field.name
        for route in ROUTES
        for field in msgspec.structs.fields(route.request)
        if "writeOnly" in str(msgspec.json.schema_components([field.type]))
    }
    assert secret == SECRETS


def test_routes_that_are_named_are_there_and_change_something() -> None:
    assert all(BY_NAME[name].is_change for name in NOTED_BELOW | NO_CHANGES)
