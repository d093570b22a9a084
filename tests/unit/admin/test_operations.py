import asyncio

import msgspec
import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.admin.api.operations import KEPT_MAX, RUNNING_MAX, Operations, Progress, Sight
from headrace.admin.rights import Operation, Resource
from headrace.errors import Conflict, Invalid, NotFound, Overloaded


def everything(operation: Operation, resource: Resource, name: str) -> bool:
    return True


async def test_an_operation_tells_its_progress_and_then_its_result() -> None:
    operations = Operations(ManualClock(1000))
    goes_on = asyncio.Event()

    async def work(progress: Progress) -> object:
        progress.total, progress.done = 10, 4
        await goes_on.wait()
        return {"found": 3}

    begun = operations.start("count", "things", work)
    await turn_of_the_loop(5)
    assert (begun.state, operations.get(begun.id, everything).done, operations.get(begun.id, everything).total) == (
        "running",
        4,
        10,
    )
    goes_on.set()
    await turn_of_the_loop(5)
    ended = operations.get(begun.id, everything)
    assert (ended.state, ended.result, ended.ended_ms) == ("done", {"found": 3}, 1000)


async def test_what_is_cancelled_says_so_and_keeps_what_it_had() -> None:
    operations = Operations(ManualClock(0))

    async def work(progress: Progress) -> object:
        progress.partial = ["half"]
        await asyncio.Event().wait()
        return None

    begun = operations.start("wait", "", work)
    await turn_of_the_loop(5)
    ended = await operations.cancel(begun.id)
    assert (ended.state, ended.result) == ("cancelled", ["half"])
    at_once = operations.start("wait", "", work)
    assert (await operations.cancel(at_once.id)).state == "cancelled"


async def test_what_is_resumed_goes_on_with_the_progress_it_had() -> None:
    operations = Operations(ManualClock(0))
    steps: list[int] = []

    async def work(progress: Progress) -> object:
        steps.append(len(steps))
        if not isinstance(progress.state, int):
            progress.state = 7
            await asyncio.Event().wait()
        return progress.state

    begun = operations.start("walk", "", work, is_resumable=True)
    await turn_of_the_loop(5)
    with pytest.raises(Conflict):
        operations.resume(begun.id)
    assert (await operations.cancel(begun.id)).can_resume
    assert operations.resume(begun.id).state == "running"
    await turn_of_the_loop(5)
    ended = operations.get(begun.id, everything)
    assert (ended.state, ended.result, ended.can_resume, steps) == ("done", 7, False, [0, 1])
    with pytest.raises(Conflict):
        operations.resume(begun.id)


async def test_what_fails_says_why_and_what_nobody_foresaw_says_little() -> None:
    operations = Operations(ManualClock(0))

    async def refuses(progress: Progress) -> object:
        raise Invalid("no such thing")

    async def breaks(progress: Progress) -> object:
        raise ZeroDivisionError("a secret")

    refused, broken = operations.start("a", "", refuses), operations.start("b", "", breaks)
    await turn_of_the_loop(5)
    assert (operations.get(refused.id, everything).state, operations.get(refused.id, everything).message) == (
        "failed",
        "no such thing",
    )
    assert operations.get(broken.id, everything).message == "unforeseen: ZeroDivisionError"


async def test_only_so_many_run_and_only_so_many_are_remembered() -> None:
    operations = Operations(ManualClock(0))

    async def waits(progress: Progress) -> object:
        return await asyncio.Event().wait()

    async def ends(progress: Progress) -> object:
        return None

    first = operations.start("ends", "", ends)
    await turn_of_the_loop(5)
    for _ in range(KEPT_MAX):
        operations.start("ends", "", ends)
        await turn_of_the_loop(5)
    with pytest.raises(NotFound):
        operations.get(first.id, everything)
    for _ in range(RUNNING_MAX):
        operations.start("waits", "", waits)
    with pytest.raises(Overloaded):
        operations.start("waits", "", waits)
    await operations.stop()
    assert not [each for each in operations.all(everything) if each.state == "running"]


async def test_a_list_has_no_results() -> None:
    operations = Operations(ManualClock())

    async def finds(progress: Progress) -> object:
        return {"found": 1}

    started = operations.start("finds", "", finds)
    await turn_of_the_loop(5)
    assert operations.get(started.id, everything).result == {"found": 1}
    assert [each.result for each in operations.all(everything)] == [None]


async def test_who_may_not_see_what_an_operation_has_found_does_not_see_the_operation() -> None:
    operations = Operations(ManualClock())

    async def finds(progress: Progress) -> object:
        return {"found": "a record"}

    def of_others(operation: Operation, resource: Resource, name: str) -> bool:
        return (operation, resource, name) != (Operation.READ, Resource.TOPIC, "secrets")

    hidden = operations.start("finds", "", finds, sight=Sight(Operation.READ, Resource.TOPIC, "secrets"))
    shown = operations.start("finds", "", finds)
    await turn_of_the_loop(5)
    assert [each.id for each in operations.all(of_others)] == [shown.id]
    with pytest.raises(NotFound) as refused:
        operations.get(hidden.id, of_others)
    with pytest.raises(NotFound) as unknown:
        operations.get("ff", of_others)
    assert str(refused.value) == str(unknown.value).replace("ff", hidden.id)
    assert operations.get(hidden.id, everything).result == {"found": "a record"}


async def test_of_a_kind_with_large_results_fewer_are_kept_and_json_is_kept_as_it_is() -> None:
    operations = Operations(ManualClock())

    async def finds(progress: Progress) -> object:
        return msgspec.Raw(b'{"found": "9007199254740993"}')

    other = operations.start("other", "", finds)
    begun = []
    for _ in range(4):
        begun.append(operations.start("large", "", finds, author="User:alice", kept_max=3))
        await turn_of_the_loop(5)
    kept = operations.all(everything)
    assert [each.id for each in kept] == [*(each.id for each in reversed(begun[1:])), other.id]
    newest = operations.get(begun[-1].id, everything)
    assert (newest.result, newest.author) == ({"found": "9007199254740993"}, "User:alice")
