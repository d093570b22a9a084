import asyncio

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.admin.api.operations import KEPT_MAX, RUNNING_MAX, Operations, Progress
from headrace.errors import Conflict, Invalid, NotFound, Overloaded


async def test_an_operation_tells_its_progress_and_then_its_result() -> None:
    operations = Operations(ManualClock(1000))
    goes_on = asyncio.Event()

    async def work(progress: Progress) -> object:
        progress.total, progress.done = 10, 4
        await goes_on.wait()
        return {"found": 3}

    begun = operations.start("count", "things", work)
    await turn_of_the_loop(5)
    assert (begun.state, operations.get(begun.id).done, operations.get(begun.id).total) == ("running", 4, 10)
    goes_on.set()
    await turn_of_the_loop(5)
    ended = operations.get(begun.id)
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
    ended = operations.get(begun.id)
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
    assert (operations.get(refused.id).state, operations.get(refused.id).message) == ("failed", "no such thing")
    assert operations.get(broken.id).message == "unforeseen: ZeroDivisionError"


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
        operations.get(first.id)
    for _ in range(RUNNING_MAX):
        operations.start("waits", "", waits)
    with pytest.raises(Overloaded):
        operations.start("waits", "", waits)
    await operations.stop()
    assert not [each for each in operations.all() if each.state == "running"]
