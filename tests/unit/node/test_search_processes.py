import asyncio
import os
import signal

import pytest

from headrace.errors import Fault
from headrace.node import search_processes
from headrace.node.search_processes import SearchProcesses


@pytest.fixture(autouse=True)
def echoing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_processes, "_MODULE", "tests.support.echoing")


async def ask(processes: SearchProcesses, said: bytes) -> bytes:
    async with processes.one() as (lines, orders):
        orders.write(said)
        return await lines.readline()


async def close(processes: SearchProcesses) -> None:
    assert processes._forks is not None
    await processes._give_up()


async def test_processes_are_forked_by_one_that_stays() -> None:
    processes = SearchProcesses()
    both = await asyncio.gather(ask(processes, b"one\n"), ask(processes, b"two\n"))
    assert list(both) == [b"ONE\n", b"TWO\n"]
    assert processes._forks is not None
    forks = processes._forks[0].pid
    assert await ask(processes, b"three\n") == b"THREE\n"
    assert processes._forks[0].pid == forks
    await close(processes)


async def test_when_it_is_gone_another_is_started() -> None:
    processes = SearchProcesses()
    assert await ask(processes, b"one\n") == b"ONE\n"
    assert processes._forks is not None
    os.kill(processes._forks[0].pid, signal.SIGKILL)
    assert await ask(processes, b"two\n") == b"TWO\n"
    await close(processes)


async def test_one_that_is_not_waited_for_does_not_answer_for_the_next() -> None:
    processes = SearchProcesses()
    given_up = asyncio.ensure_future(ask(processes, b"one\n"))
    while processes._forks is None:
        await asyncio.sleep(0)
    given_up.cancel()
    assert await ask(processes, b"two\n") == b"TWO\n"
    assert given_up.cancelled()
    await close(processes)


async def test_a_process_ends_with_its_block_whatever_it_does() -> None:
    processes = SearchProcesses()
    async with processes.one() as (lines, orders):
        orders.write(b"stay\n")
        assert await lines.readline() == b"STAY\n"
    assert await lines.read() == b""
    await close(processes)


async def test_where_none_can_be_started_the_search_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_processes, "_MODULE", "nothing.of.this.name")
    with pytest.raises(Fault, match="no search process"):
        await ask(SearchProcesses(), b"one\n")
