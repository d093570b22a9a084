"""Every route asks for its right before anything happens, and nobody gets past a gate that says no."""

from typing import Any, cast

import msgspec
import pytest

from headrace.admin.api.asking import ask
from headrace.admin.api.calls import Parts
from headrace.admin.api.table import ROUTES, Route
from headrace.admin.rights import CLUSTER_NAME, Caller, Operation, Principal, Resource
from headrace.errors import Denied

READS = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}


class Clerk:
    """A gate that remembers what it was asked, and says no."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, Resource, str]] = []

    def principal_of(self, caller: Caller) -> Principal:
        return Principal("User:nobody")

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((operation, resource, name))
        return False


def a_request_for(route: Route) -> Any:  # Any: the route's own type
    values: dict[str, Any] = {}  # Any: as JSON has it
    for field in msgspec.structs.fields(route.request):
        if field.required:
            values[field.name] = 0 if field.name in ("partition", "offset", "broker", "count", "before") else "x"
    if "target" in values:
        values["target"] = "earliest"
    if "count" in values:
        values["count"] = 1
    return msgspec.convert(values, route.request)


class Untouchable:
    """Any use of the node is a failure: nothing may happen before the right is checked."""

    def __init__(self, gate: Clerk) -> None:
        self.gate = gate

    def __getattr__(self, name: str) -> Any:  # Any: never returned
        raise AssertionError(f"{name} was used before the right was checked")


REFUSABLE = [route for route in ROUTES if route.right.resource is Resource.CLUSTER or route.right.field is not None]
"""All but lists, whose handlers leave out what the caller may not see."""


@pytest.mark.parametrize("route", REFUSABLE, ids=lambda route: route.name)
async def test_nobody_gets_an_answer_and_nothing_is_touched(route: Route) -> None:
    clerk = Clerk()
    request = a_request_for(route)
    with pytest.raises(Denied, match="User:nobody may not"):
        await ask(route, request, Caller(address="127.0.0.1"), cast(Parts, Untouchable(clerk)))
    name = CLUSTER_NAME if route.right.field is None else getattr(request, route.right.field)
    assert clerk.asked == [(route.right.operation, route.right.resource, name)]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_change_needs_more_than_a_look_and_a_look_no_more(route: Route) -> None:
    if route.method == "GET":
        assert route.right.operation in READS
    elif route.name not in ("ResetOffset", "SearchTopic"):  # Kafka asks for READ for a commit; a search only reads.
        assert route.right.operation not in READS


@pytest.mark.parametrize("route", [route for route in ROUTES if route.is_change], ids=lambda route: route.name)
def test_everything_that_changes_something_has_a_dry_run(route: Route) -> None:
    fields = {field.name for field in msgspec.structs.fields(route.request)}
    # These start or stop work that changes no data.
    assert "dry_run" in fields or route.name in ("VerifyStorage", "CancelOperation", "SearchTopic")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_names_in_the_path_and_the_right_are_fields_of_the_request(route: Route) -> None:
    fields = {field.name for field in msgspec.structs.fields(route.request)}
    assert {*route.names_in_path, *([route.right.field] if route.right.field else [])} <= fields
    assert route.request.__struct_config__.forbid_unknown_fields
