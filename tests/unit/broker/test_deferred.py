"""A result that comes later: once, to one who waits, whichever of the two comes first."""

import asyncio

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.broker.deferred import Deferred
from headrace.errors import TimedOut


def test_callback_comes_at_the_moment_of_the_result() -> None:
    deferred: Deferred[int] = Deferred()
    seen: list[int] = []
    deferred.then(lambda done: seen.append(done.result()))
    assert (seen, deferred.is_done) == ([], False)
    deferred.resolve(5)
    assert (seen, deferred.is_done) == ([5], True)


def test_callback_comes_at_once_when_the_result_is_there() -> None:
    seen: list[int] = []
    Deferred.resolved(5).then(lambda done: seen.append(done.result()))
    assert seen == [5]


def test_first_outcome_counts() -> None:
    deferred: Deferred[int] = Deferred()
    seen: list[int] = []
    deferred.then(lambda done: seen.append(done.result()))
    deferred.resolve(1)
    deferred.resolve(2)
    deferred.reject(TimedOut("late"))
    assert (seen, deferred.result()) == ([1], 1)


def test_rejection_is_raised_where_the_result_is_asked_for() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.reject(TimedOut("too late"))
    deferred.resolve(1)
    assert deferred.is_done
    with pytest.raises(TimedOut, match="too late"):
        deferred.result()


def test_none_is_a_result() -> None:
    deferred: Deferred[None] = Deferred()
    deferred.resolve(None)
    assert deferred.is_done
    deferred.result()


def test_one_waits_at_a_time() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.then(lambda done: None)
    with pytest.raises(AssertionError):
        deferred.then(lambda done: None)


async def test_it_can_be_awaited_before_and_after() -> None:
    deferred: Deferred[int] = Deferred()
    asyncio.get_running_loop().call_soon(deferred.resolve, 7)
    assert await deferred == 7
    assert await deferred == 7
    failing: Deferred[int] = Deferred()
    asyncio.get_running_loop().call_soon(failing.reject, TimedOut("no"))
    with pytest.raises(TimedOut):
        await failing


async def test_waiting_task_that_is_cancelled_does_not_spoil_the_result() -> None:
    deferred: Deferred[int] = Deferred()

    async def wait() -> int:
        return await deferred

    task = asyncio.ensure_future(wait())
    await turn_of_the_loop()
    task.cancel()
    await turn_of_the_loop()
    assert task.cancelled()
    deferred.resolve(3)
    assert deferred.result() == 3


def test_abandoned_result_tells_who_works_on_it_and_calls_nobody() -> None:
    deferred: Deferred[int] = Deferred()
    told: list[str] = []
    deferred.then(lambda done: told.append("result"))
    deferred.on_abandoned = lambda: told.append("abandoned")
    deferred.abandon()
    deferred.resolve(1)
    assert told == ["abandoned"]
    deferred.abandon()
    assert told == ["abandoned"]
