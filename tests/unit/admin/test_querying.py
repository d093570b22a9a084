"""SQL as an operation: started where there is room, kept with who asked, and seen by administrators alone."""

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.admin.api.calls import Call, Parts, SqlOrder
from headrace.admin.api.operations import Operations, Progress
from headrace.admin.api.querying import KEPT_MAX, RunSql, run_sql
from headrace.admin.rights import Operation, Principal, Resource
from headrace.errors import NotFound, Overloaded


class Beside:
    """As much of the node as a query is handed to."""

    def __init__(self) -> None:
        self.is_full = False
        self.asked: list[SqlOrder] = []

    def require_room(self) -> None:
        if self.is_full:
            raise Overloaded("enough others wait")

    async def run(self, order: SqlOrder, progress: Progress) -> msgspec.Raw:
        self.asked.append(order)
        progress.done = 1
        return msgspec.Raw(b'{"rows": [["9223372036854775807"]]}')


def administrator(operation: Operation, resource: Resource, name: str) -> bool:
    return resource is Resource.CLUSTER


def reader(operation: Operation, resource: Resource, name: str) -> bool:
    return operation in (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
def call(beside: Beside) -> Call:
    parts = SimpleNamespace(operations=Operations(ManualClock()), queries=beside)
    return Call(cast(Parts, parts), Principal("User:alice"))


async def test_who_may_only_look_sees_neither_the_query_nor_its_rows(call: Call, beside: Beside) -> None:
    begun = await run_sql(RunSql(query="select 1", limit=7), call)
    await turn_of_the_loop(5)
    assert beside.asked == [SqlOrder(query="select 1", limit=7)]
    operations = call.parts.operations
    found = operations.get(begun.id, administrator)
    assert (found.author, found.target, found.done) == ("User:alice", "select 1", 1)
    assert found.result == {"rows": [["9223372036854775807"]]}
    assert operations.all(reader) == []
    with pytest.raises(NotFound):
        operations.get(begun.id, reader)


async def test_where_there_is_no_room_nothing_begins(call: Call, beside: Beside) -> None:
    beside.is_full = True
    with pytest.raises(Overloaded):
        await run_sql(RunSql(query="select 1"), call)
    assert call.parts.operations.all(administrator) == []


async def test_only_the_newest_are_remembered(call: Call) -> None:
    for number in range(KEPT_MAX + 3):
        await run_sql(RunSql(query=f"select {number}"), call)
        await turn_of_the_loop(5)
    kept = [each.target for each in call.parts.operations.all(administrator)]
    assert kept == [f"select {number}" for number in range(KEPT_MAX + 2, 2, -1)]
