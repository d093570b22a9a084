import asyncio
import itertools

from tests.support.logs import turn_of_the_loop

from headrace.broker.slices import SLICE_NS, Turns


async def walk(name: str, steps: list[str]) -> None:
    # A clock by which every step uses up the budget.
    ticks = itertools.count(0, SLICE_NS)
    async for _ in Turns(lambda: next(ticks)).over(range(3)):
        steps.append(name)


async def test_of_many_walks_one_goes_on_in_each_turn_of_the_loop() -> None:
    steps: list[str] = []
    walks = [asyncio.ensure_future(walk(name, steps)) for name in "abcdefgh"]
    await turn_of_the_loop()
    # Each has begun; from now on they take turns.
    assert steps == list("abcdefgh")
    while not all(each.done() for each in walks):
        before = len(steps)
        await turn_of_the_loop()
        assert len(steps) - before <= 1
    assert steps == list("abcdefgh") * 3


async def test_a_walk_that_is_given_up_while_it_waits_holds_nobody_up() -> None:
    steps: list[str] = []
    first, second = (asyncio.ensure_future(walk(name, steps)) for name in "ab")
    await turn_of_the_loop()
    first.cancel()
    await asyncio.wait_for(second, 10)
    assert steps == ["a", "b", "b", "b"]
