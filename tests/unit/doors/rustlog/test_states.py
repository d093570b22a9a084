"""A RustLog connection is always in one of the protocol's states, and moves as the protocol allows."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.transports import FakeTransport

from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.words import ANONYMOUS
from headrace.broker.deferred import Deferred
from headrace.broker.produce import Produce
from headrace.doors.conversation import Hall
from headrace.doors.listening import Listener, own_listener
from headrace.doors.rustlog.metrics import RustLogMetrics
from headrace.doors.rustlog.server import RustLogConnection
from headrace.doors.rustlog.session import Session
from headrace.doors.rustlog.settings import RustLogSettings
from headrace.errors import StorageFailed, StorageFull, StoreUnavailable
from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import decode_response, encode
from headrace.wire.rustlog.codes import TRANSITIONS, ConnectionState

NOBODY_ASKED = Access(SecuritySettings())
LISTENER = Listener(own_listener("rustlog", "127.0.0.1:0", None))


class Waiting(RustLogConnection):
    """Its requests are answered when the test says so."""

    answer: Deferred[m.Response]

    def start(self, request: m.Request) -> Deferred[m.Response]:
        self.answer = Deferred()
        return self.answer


def session_in(hall: Hall) -> Session:
    return Session(
        broker=cast(Any, SimpleNamespace(access=NOBODY_ASKED)),
        settings=RustLogSettings(),
        gathering=hall.gathering,
        metrics=RustLogMetrics(),
        guard=NOBODY_ASKED.guard(ANONYMOUS, ""),
    )


@pytest.mark.requirement("R0.86", "R0.87", "C12")
async def test_the_servers_states() -> None:
    hall = Hall("rustlog", cast(Produce, None), lambda: 0, idle_timeout_ms=1_000, handler_timeout_ms=1_000)
    session = session_in(hall)
    connection = Waiting(hall, session, LISTENER)
    states = []

    def receive(data: bytes) -> None:
        buffer = connection.get_buffer(-1)
        buffer[: len(data)] = data
        connection.buffer_updated(len(data))
        states.append(connection.state)

    connection.connection_made(FakeTransport())
    states.append(connection.state)
    receive(encode(m.Ping()))
    connection.answer.resolve(m.Pong())
    await turn_of_the_loop()
    states.append(connection.state)
    receive(b"\xff\xff\xff\xff")
    connection.connection_lost(None)
    states.append(connection.state)
    s = ConnectionState
    assert states == [s.CONNECTED, s.REQUEST_ACTIVE, s.CONNECTED, s.ERROR, s.CLOSED]
    assert all(after in TRANSITIONS[before] for before, after in pairwise(states))
    assert session.metrics.active_connections == 0


async def test_a_request_that_waits_for_a_full_log_is_507_and_the_connection_goes_on() -> None:
    hall = Hall("rustlog", cast(Produce, None), lambda: 0, idle_timeout_ms=10_000, handler_timeout_ms=500)
    hall.gathering.is_waiting_for_room = True
    transport = FakeTransport()
    connection = Waiting(hall, session_in(hall), LISTENER)
    connection.connection_made(transport)
    ping = encode(m.Ping())
    for _ in range(2):
        buffer = connection.get_buffer(-1)
        buffer[: len(ping)] = ping
        connection.buffer_updated(len(ping))
        connection.expire(501)
        await turn_of_the_loop()
    answers = [decode_response(answer[4:]) for answer in transport.pieces]
    assert [answer.code for answer in answers if isinstance(answer, m.Error)] == [507, 507]


@pytest.mark.requirement("R0.81", "R0.85")
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StorageFull("no room"), 507),
        (StorageFailed("the disk is gone"), 503),
        (StoreUnavailable("the bucket is away"), 503),
        (RuntimeError("nobody foresaw this"), 500),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_a_request_that_fails_is_told_why_and_the_connection_goes_on(failure: Exception, code: int) -> None:
    hall = Hall("rustlog", cast(Produce, None), lambda: 0, idle_timeout_ms=10_000, handler_timeout_ms=500)
    transport = FakeTransport()
    connection = Waiting(hall, session_in(hall), LISTENER)
    connection.connection_made(transport)
    ping = encode(m.Ping())
    for outcome in (failure, m.Pong()):
        buffer = connection.get_buffer(-1)
        buffer[: len(ping)] = ping
        connection.buffer_updated(len(ping))
        if isinstance(outcome, Exception):
            connection.answer.reject(outcome)
        else:
            connection.answer.resolve(outcome)
        await turn_of_the_loop()
    refused, answered = (decode_response(answer[4:]) for answer in transport.pieces)
    assert isinstance(refused, m.Error)
    assert refused.code == code
    assert isinstance(answered, m.Pong)
    assert connection.state is ConnectionState.CONNECTED
