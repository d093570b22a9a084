"""A door gives the loop back after its time, and goes on behind whatever has arrived for others."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop
from tests.support.logs import turn_of_the_loop

from headrace.broker.deferred import Deferred
from headrace.doors.turns import TURN_NS, Turns


class Watch:
    """Time that passes when somebody works."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def work(self, share_of_turn: float) -> None:
        self.now_ns += int(TURN_NS * share_of_turn)


async def turns_of_the_loop(count: int = 5) -> None:
    for _ in range(count):
        await turn_of_the_loop()


async def test_a_turn_is_over_when_its_time_is_and_the_next_one_begins_afresh() -> None:
    watch = Watch()
    turns = Turns(watch)
    assert not turns.is_over()
    watch.work(0.9)
    assert not turns.is_over()
    watch.work(0.2)
    assert turns.is_over()
    await turns_of_the_loop()
    assert not turns.is_over()
    turns.close()


async def test_those_who_wait_go_on_in_order_as_far_as_the_time_goes() -> None:
    watch = Watch()
    turns = Turns(watch)
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        watch.work(0.4)

    for number in range(7):
        turns.next().then(lambda _, number=number: work(number))  # type: ignore[misc]
    assert done == []
    seen = []
    while len(done) < 7:
        await turn_of_the_loop()
        seen.append(len(done))
    assert done == list(range(7))
    assert [count for count in sorted(set(seen)) if count] == [3, 6, 7]
    turns.close()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_what_arrives_during_a_turn_is_served_before_the_next_one(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        order = runner.run(turns_beside_another_door())
    assert order == ["turn", "turn", "turn", "arrived", "answered", "turn", "turn", "turn"]


async def turns_beside_another_door() -> list[str]:
    """Something arrives for the other door in the middle of the third of six turns."""
    watch = Watch()
    turns = Turns(watch)
    order: list[str] = []
    other_door, client = socket.socketpair()
    loop = asyncio.get_running_loop()

    def arrived() -> None:
        other_door.recv(1)
        order.append("arrived")
        loop.call_soon(order.append, "answered")

    def turn(_: Deferred[str]) -> None:
        order.append("turn")
        watch.work(1)
        if order.count("turn") == 3:
            client.send(b"x")
        if order.count("turn") < 6:
            turns.next().then(turn)

    loop.add_reader(other_door, arrived)
    turns.next().then(turn)
    while order.count("turn") < 6:
        await turn_of_the_loop()
    loop.remove_reader(other_door)
    other_door.close()
    client.close()
    turns.close()
    return order


async def test_after_the_end_there_are_no_turns() -> None:
    turns = Turns()
    waiting = turns.next()
    turns.close()
    later = turns.next()
    await turns_of_the_loop()
    assert not turns.is_over()
    assert not waiting.is_done
    assert not later.is_done
