"""Every route asks for its right before anything happens, and nobody gets past a gate that says no."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.support.api_requests import fields_for
from tests.support.metastores import ManualClock

from headrace.admin.api.asking import ask
from headrace.admin.api.calls import Call, Parts
from headrace.admin.api.table import ROUTES, Route
from headrace.admin.login.entrance import Entrance, EntranceSettings
from headrace.admin.rights import CLUSTER_NAME, Operation, Principal, Resource
from headrace.broker.access import words
from headrace.broker.access.rules import Rule
from headrace.broker.access.service import Access, everything_for
from headrace.broker.access.settings import SecuritySettings
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import Denied

READS = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
LOOKS_BY_POST = {"ResetOffset", "SearchTopic"}
"""Kafka asks for READ for a commit; a search only reads."""


class Clerk:
    """A gate that remembers what it was asked, and says no."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, Resource, str]] = []

    def may(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.append((operation, resource, name))
        return False


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
    request = msgspec.convert(fields_for(route), route.request)
    with pytest.raises(Denied, match="User:nobody may not"):
        await ask(route, request, Principal("User:nobody"), cast(Parts, Untouchable(clerk)))
    name = CLUSTER_NAME if route.right.field is None else getattr(request, route.right.field)
    assert clerk.asked == [(route.right.operation, route.right.resource, name)]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_change_needs_more_than_a_look_and_a_look_no_more(route: Route) -> None:
    if route.method == "GET":
        assert route.right.operation in READS
    elif route.name not in LOOKS_BY_POST:
        assert route.right.operation not in READS


@pytest.mark.parametrize("route", [route for route in ROUTES if route.is_change], ids=lambda route: route.name)
def test_everything_that_changes_something_has_a_dry_run(route: Route) -> None:
    fields = {field.name for field in msgspec.structs.fields(route.request)}
    # These start or stop work that changes no data.
    without = ("VerifyStorage", "CancelOperation", "ResumeOperation", "SearchTopic", "RunSql")
    assert "dry_run" in fields or route.name in without


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_names_in_the_path_and_the_right_are_fields_of_the_request(route: Route) -> None:
    fields = {field.name for field in msgspec.structs.fields(route.request)}
    assert {*route.names_in_path, *([route.right.field] if route.right.field else [])} <= fields
    assert route.request.__struct_config__.forbid_unknown_fields


READER = [
    Rule(resource=resource, name=name, principal="User:reader", operation=operation)
    for resource, name, operations in (
        (words.Resource.CLUSTER, CLUSTER_NAME, (words.Operation.DESCRIBE, words.Operation.DESCRIBE_CONFIGS)),
        (words.Resource.TOPIC, "x", (words.Operation.READ, words.Operation.DESCRIBE_CONFIGS)),
        (words.Resource.GROUP, "x", (words.Operation.READ,)),
        (words.Resource.TRANSACTIONAL_ID, "x", (words.Operation.DESCRIBE,)),
    )
    for operation in operations
]


@pytest.fixture
async def access(tmp_path: Path) -> AsyncIterator[Access]:
    """Rules as a node keeps them: of a reader, of an administrator, and none of anybody else."""
    store = await EmbeddedMetastore.open(tmp_path / "metastore.sqlite")
    access = Access(SecuritySettings(authorization_enable=True), store)
    await access.load()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(access.follow())
        await access.add_rules([*READER, *everything_for(words.Principal("administrator"))])
        yield access
        following.cancel()
    await store.close()


async def is_served(route: Route, who: str, access: Access) -> bool:
    """Whether the route's handler is reached."""
    served = []

    async def handler(request: Any, call: Call) -> None:  # Any: the route's own type
        served.append(call.principal.name)

    watched = msgspec.structs.replace(route, handler=handler)
    parts = cast(
        Parts,
        SimpleNamespace(
            gate=Entrance(access, EntranceSettings(), ManualClock()), broker=SimpleNamespace(access=access)
        ),
    )
    try:
        await ask(watched, msgspec.convert(fields_for(route), route.request), Principal(f"User:{who}"), parts)
    except Denied:
        assert served == []
        return False
    assert served == [f"User:{who}"]
    return True


async def test_every_route_serves_whom_it_should_and_nobody_else(access: Access) -> None:
    """Lists are reached by all: their handlers leave out what the caller may not see."""
    people = ("nobody", "reader", "administrator")
    found = {route.name: [who for who in people if await is_served(route, who, access)] for route in ROUTES}
    expected = {}
    for route in ROUTES:
        is_look = not route.is_change or route.name in LOOKS_BY_POST
        first = 0 if route not in REFUSABLE else 1 if is_look else 2
        expected[route.name] = list(people[first:])
    assert found == expected
    assert sum("reader" not in each for each in found.values()) > 15, "changes are denied to who only reads"
