"""Requests look as if they were done one after the other; time limits, streams and hang-ups leave nobody waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.transports import FakeTransport

from headrace.broker.deferred import Deferred
from headrace.broker.produce import Produce
from headrace.doors.conversation import Conversation, Hall, Outcome
from headrace.doors.turns import TURN_NS, Turns
from headrace.errors import MalformedRequest, TimedOut, TopicNotFound


class Letters(Conversation[str, str]):
    """A protocol of single letters: `p` produces and may overlap, `q` asks, `s` streams, `a` works, `x` is wrong."""

    HEADER_SIZE = 1

    def __init__(self, hall: Hall) -> None:
        super().__init__(hall)
        self.begun: list[str] = []
        self.waiting: list[Deferred[str]] = []
        self.feed: asyncio.Queue[str] = asyncio.Queue()
        self.is_stream_ended = False

    def frame_size(self, view: memoryview, at: int) -> int:
        if view[at] == ord("!"):
            raise MalformedRequest("nonsense")
        return 0

    def decode(self, frame: memoryview) -> str:
        letter = bytes(frame).decode()
        if letter == "x":
            raise TopicNotFound("x")
        return letter

    def may_overlap(self, request: str) -> bool:
        return request == "p"

    def start(self, request: str) -> Outcome[str]:
        self.begun.append(request)
        match request:
            case "p":
                self.waiting.append(Deferred())
                return self.waiting[-1]
            case "a":
                return self._work()
            case "s":
                return self._follow()
            case "f":
                raise RuntimeError("a fault")
            case _:
                return request.upper()

    async def _work(self) -> str:
        await turn_of_the_loop()
        return "A"

    async def _follow(self) -> AsyncIterator[str]:
        try:
            while True:
                yield await self.feed.get()
        finally:
            self.is_stream_ended = True

    def encode(self, response: str) -> bytes:
        return response.encode()

    def describe(self, error: Exception) -> bytes:
        return f"<{type(error).__name__}>".encode()


@pytest.fixture
def open_letters() -> Callable[[], tuple[Letters, FakeTransport]]:
    def open_one() -> tuple[Letters, FakeTransport]:
        hall = Hall("letters", cast(Produce, None), lambda: 0, idle_timeout_ms=1_000, handler_timeout_ms=500)
        connection, transport = Letters(hall), FakeTransport()
        connection.connection_made(transport)
        return connection, transport

    return open_one


Open = Callable[[], tuple[Letters, FakeTransport]]


def receive(connection: Letters, data: bytes) -> None:
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await turn_of_the_loop()


async def test_produces_overlap_and_everything_else_waits(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"ppqp")
    assert connection.begun == ["p", "p"]
    assert transport.is_paused
    connection.waiting[1].resolve("2")
    await turns()
    assert transport.written == b""
    connection.waiting[0].resolve("1")
    await turns()
    assert transport.written == b"12Q"
    assert connection.begun == ["p", "p", "q", "p"]
    assert not transport.is_paused


async def test_questions_that_are_answered_at_once_do_not_wait_for_each_other(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"qqq")
    assert connection.begun == ["q", "q", "q"]
    await turns()
    assert transport.written == b"QQQ"


async def test_wrong_requests_keep_their_place_among_the_answers(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"pxp")
    for each in connection.waiting:
        each.resolve("P")
    await turns()
    assert transport.written == b"P<TopicNotFound>P"


async def test_what_nobody_foresaw_is_answered_too(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"fq")
    await turns()
    assert transport.written == b"<RuntimeError>Q"


async def test_nonsense_is_answered_after_what_came_before_and_ends_the_connection(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"p!q")
    assert not transport.is_closed
    connection.waiting[0].resolve("P")
    await turns()
    assert transport.written == b"P<MalformedRequest>"
    assert transport.is_closed


async def test_an_overdue_answer_is_given_up_and_its_late_arrival_ignored(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"p")
    connection.expire(499)
    assert transport.written == b""
    connection.expire(501)
    await turns()
    assert transport.written == f"<{TimedOut.__name__}>".encode()
    connection.waiting[0].resolve("late")
    await turns()
    assert transport.written == b"<TimedOut>"


async def test_the_silent_are_closed_and_those_who_wait_are_not(open_letters: Open) -> None:
    connection, transport = open_letters()
    connection.expire(1_001)
    assert transport.is_closed
    connection, transport = open_letters()
    receive(connection, b"s")
    connection.expire(5_000)
    assert not transport.is_closed
    connection.connection_lost(None)
    await turns()


async def test_work_is_answered_in_its_place(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"aq")
    await turns(10)
    assert transport.written == b"AQ"


async def test_a_stream_ends_with_its_client_even_while_it_waits(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"sq")
    connection.feed.put_nowait("1")
    connection.feed.put_nowait("2")
    await turns(10)
    assert transport.written == b"12"
    assert connection.begun == ["s"]
    connection.connection_lost(None)
    await turns(10)
    assert connection.is_stream_ended


async def test_a_client_that_closed_its_side_is_still_answered(open_letters: Open) -> None:
    connection, transport = open_letters()
    receive(connection, b"p")
    assert connection.eof_received() is True
    connection.expire(1)
    assert not transport.is_closed
    connection.waiting[0].resolve("P")
    await turns()
    assert transport.written == b"P"
    connection.expire(2)
    assert transport.is_closed


async def test_who_pipelines_takes_turns_with_the_others(open_letters: Open) -> None:
    """No connection holds the loop for longer than a turn, and what waits goes round."""
    now_ns = 0

    def half_a_turn_each_time() -> int:
        nonlocal now_ns
        now_ns += TURN_NS // 2
        return now_ns

    greedy, transport = open_letters()
    hall = greedy._hall
    hall.turns = Turns(half_a_turn_each_time)
    modest = Letters(hall)
    modest.connection_made(FakeTransport())
    receive(greedy, b"p" * 12)
    receive(modest, b"p")
    assert 0 < len(greedy.begun) < 4
    assert modest.begun == []
    assert transport.is_paused
    while not modest.begun:
        await turn_of_the_loop()
    assert len(greedy.begun) < 8
    await turns(50)
    assert len(greedy.begun) == 12
    assert not transport.is_paused
    hall.turns.close()
