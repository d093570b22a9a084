"""Whoever has not logged in is served nothing, by the handlers and by the fast path, whether or not there are access rules."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.kafka_door import OpenedDoor, opened_door
from tests.support.logs import batch_of
from tests.support.raw_kafka import produce_request

from headrace.broker.access.rules import Rule
from headrace.broker.access.scram import Verifier
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.words import Operation, Resource
from headrace.doors.kafka.handlers import sasl_authenticate
from headrace.doors.settings import Mechanism
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.produce_response import ProduceResponse
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

VERSION = 9
PASSWORD = "wood and water"
MECHANISMS: Final[tuple[Mechanism, ...]] = ("PLAIN", "SCRAM-SHA-256")
RULE = Rule(resource=Resource.TOPIC, name="orders", principal="User:alice", operation=Operation.WRITE)
HANDSHAKE = (SaslHandshakeRequest("PLAIN"), 1)
GUESS = (SaslAuthenticateRequest(b"\0alice\0guess"), 2)
PROOF = (SaslAuthenticateRequest(f"\0alice\0{PASSWORD}".encode()), 2)
RECORDS = bytes(batch_of(b"v"))
PRODUCE = (produce_request("orders", 0, RECORDS), VERSION)


@contextlib.asynccontextmanager
async def secured(directory: Path, *, is_asked: bool, reauth_max_ms: int = 0) -> AsyncIterator[OpenedDoor]:
    """A door with the user `alice`, who may write to `orders`; `is_asked` is whether there are access rules at all."""
    security = SecuritySettings(authorization_enable=is_asked, reauth_max_ms=reauth_max_ms)
    async with opened_door(directory, ["orders"], security=security, auto_create_topics_enable=False) as door:
        access = door.door.broker.access
        await access.ensure_administrator("alice", PASSWORD)
        yield door


def written(door: OpenedDoor) -> int:
    return door.topics.get("orders").partitions[0].end_offset


def pipelined(*requests: tuple[Message, int]) -> bytes:
    return b"".join(encode_request(request, version, nth, "test") for nth, (request, version) in enumerate(requests, 1))


async def until(door: OpenedDoor, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await door.settle()


@pytest.mark.parametrize("is_asked", [False, True], ids=["without rules", "with rules"])
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
async def test_a_stranger_writes_nothing(tmp_path: Path, is_asked: bool, acks: int, by_id: bool) -> None:
    async with secured(tmp_path, is_asked=is_asked) as door:
        wire = door.connect(sasl=MECHANISMS)
        topic_id = door.topics.get("orders").id
        wire.send(produce_request("orders", 0, RECORDS, acks=acks, topic_id=topic_id), 13 if by_id else VERSION)
        await until(door, lambda: wire.is_closed)
        assert written(door) == 0
        assert wire.written == b""


@pytest.mark.parametrize("is_asked", [False, True], ids=["without rules", "with rules"])
@pytest.mark.parametrize("before", [(HANDSHAKE,), (HANDSHAKE, GUESS)], ids=["a handshake", "a wrong password"])
async def test_records_right_behind_an_unfinished_login_are_not_written(
    tmp_path: Path, is_asked: bool, before: tuple[tuple[Message, int], ...]
) -> None:
    async with secured(tmp_path, is_asked=is_asked) as door:
        wire = door.connect(sasl=MECHANISMS)
        wire.feed(pipelined(*before, PRODUCE))
        await until(door, lambda: wire.is_closed)
        assert written(door) == 0


@pytest.mark.parametrize("is_asked", [False, True], ids=["without rules", "with rules"])
async def test_records_right_behind_a_login_wait_for_it(tmp_path: Path, is_asked: bool) -> None:
    """A client need not wait for the answer: Kafka takes one request of a connection after the other."""
    async with secured(tmp_path, is_asked=is_asked) as door:
        wire = door.connect(sasl=MECHANISMS)
        wire.feed(pipelined(HANDSHAKE, PROOF, PRODUCE, PRODUCE))
        await until(door, lambda: len(wire.frames()) == 4)
        assert wire.answered() == [1, 2, 3, 4]
        assert wire.answer(2, SaslAuthenticateResponse, 2).error_code == 0
        assert wire.answer(4, ProduceResponse, VERSION).responses[0].partition_responses[0].base_offset == 1
        assert written(door) == 2


async def test_a_login_that_is_over_ends_the_fast_path_without_rules_too(tmp_path: Path) -> None:
    async with secured(tmp_path, is_asked=False, reauth_max_ms=60_000) as door:
        wire = door.connect(sasl=MECHANISMS)
        wire.feed(pipelined(HANDSHAKE, PROOF, PRODUCE, PRODUCE))
        await until(door, lambda: len(wire.frames()) == 4)
        door.clock.advance(60_001)
        door.peers.expire(door.clock.now_ms())
        wire.send(*PRODUCE)
        await until(door, lambda: wire.is_closed)
        assert written(door) == 2


def bare(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("is_asked", [False, True], ids=["without rules", "with rules"])
async def test_after_the_oldest_handshake_messages_come_bare(tmp_path: Path, is_asked: bool) -> None:
    async with secured(tmp_path, is_asked=is_asked) as door:
        wire = door.connect(sasl=MECHANISMS)
        wire.feed(pipelined((SaslHandshakeRequest("PLAIN"), 0)) + bare(f"\0alice\0{PASSWORD}".encode()))
        wire.feed(pipelined(PRODUCE))
        await until(door, lambda: len(wire.frames()) == 3)
        assert wire.frames()[1] == b""
        assert written(door) == 1
        # Not a second time: what follows would be read as a login, though requests are served.
        wire.send(SaslHandshakeRequest("PLAIN"), 0)
        wire.send(*PRODUCE)
        await until(door, lambda: len(wire.frames()) == 5)
        assert written(door) == 2


@pytest.mark.parametrize("message", [b"", b"\0alice\0guess", pipelined(PRODUCE)[4:]], ids=["none", "wrong", "records"])
async def test_a_bare_message_that_proves_nothing_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    monkeypatch.setattr(sasl_authenticate, "REFUSED_DELAY_S", 0.01)
    async with secured(tmp_path, is_asked=False) as door:
        wire = door.connect(sasl=MECHANISMS)
        wire.feed(pipelined((SaslHandshakeRequest("PLAIN"), 0)) + bare(message) + pipelined(PRODUCE, PROOF))
        await until(door, lambda: wire.is_closed)
        assert len(wire.frames()) == 1
        assert written(door) == 0


@pytest.mark.parametrize("is_new_handshake", [False, True])
async def test_one_connection_gets_one_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new_handshake: bool
) -> None:
    """However many come at once: the delay and the connection are what guessing costs."""
    guessed: list[str] = []
    async with secured(tmp_path, is_asked=True) as door:
        users = door.door.broker.access.users
        check = users.check_password

        async def counted(name: str, password: str) -> Verifier:
            guessed.append(password)
            return await check(name, password)

        monkeypatch.setattr(users, "check_password", counted)
        monkeypatch.setattr(sasl_authenticate, "REFUSED_DELAY_S", 0.05)
        wire = door.connect(sasl=MECHANISMS)
        again = (HANDSHAKE, GUESS) if is_new_handshake else (GUESS,)
        wire.feed(pipelined(HANDSHAKE, GUESS))
        for _ in range(5):
            await door.settle()
            if wire.is_read_from:
                wire.feed(pipelined(*again * 20, PROOF, PRODUCE))
        await until(door, lambda: wire.is_closed)
        assert guessed == ["guess"]
        assert wire.answered() == [1, 2]
        assert wire.answer(2, SaslAuthenticateResponse, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert written(door) == 0
