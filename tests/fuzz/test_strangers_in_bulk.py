"""Millions of strangers' frames at a listener that asks for a login, through the same connection, kernel and handlers, without sockets.

A frame is one that the connection has cut out of its bytes and looked at; whatever is wrong ends the connection, so most have few. What
makes a frame dear elsewhere is left out here, and is no parsing: sockets, lines of the log, and the thousands of rounds of a password
(`test_before_login` has them). HEADRACE_FUZZ_FRAMES says how many; `make fuzz-strangers` runs ten million with the sanitizers and writes
docs/benchmarks/strangers.md.
"""

import asyncio
import dataclasses
import functools
import logging
import os
import platform
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from tests.fuzz.test_before_login import MECHANISMS, TOKENS, _frame
from tests.fuzz.test_kernels import EDGES
from tests.support.kafka_door import OpenedDoor, Wire, opened_door
from tests.support.tokens import Issuer

from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.users import Users
from headrace.doors.connection import Blocked
from headrace.doors.kafka.handlers import sasl_authenticate
from headrace.doors.kafka.login import STRANGER_FRAME_MAX
from headrace.doors.kafka.server import KafkaConnection
from headrace.doors.listening import Listener
from headrace.doors.settings import ListenerSettings
from headrace.errors import Denied
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

FRAMES: Final = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "20000"))
SEED: Final = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))
REPORT: Final = os.environ.get("HEADRACE_FUZZ_REPORT")
CORPUS: Final = 3_000
TOGETHER: Final = 40
GROWTH_MIB_MAX: Final = 64
"""Of resident memory after the first tenth, in which caches and the sanitizers' own memory fill up."""


class Counting(KafkaConnection):
    """Counts what it looks at."""

    looked_at = 0

    def take_frame(self, frame: memoryview, resumed: str | None) -> Blocked | None:
        if resumed is None:
            Counting.looked_at += 1
        return super().take_frame(frame, resumed)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without what costs much and reads nothing."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    monkeypatch.setattr(sasl_authenticate, "REFUSED_DELAY_S", 0)

    async def refuse(users: Users, name: str, password: str) -> None:
        raise Denied("wrong user or password")

    async def at_once(work: object, *arguments: object) -> object:
        return work(*arguments)  # type: ignore[operator]

    monkeypatch.setattr(Users, "check_password", refuse)
    monkeypatch.setattr("headrace.doors.kafka.login.asyncio.to_thread", at_once)
    yield
    structlog.configure(**before)


@pytest.mark.timeout(60 + FRAMES // 2000)
async def test_many_frames_of_strangers_write_nothing_and_leave_nothing(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    security = SecuritySettings(
        authorization_enable=True,
        oauth_jwks_file=str(issuer.jwks),
        oauth_issuer=issuer.settings["security.oauth.issuer"],
        oauth_audience=issuer.settings["security.oauth.audience"],
    )
    began_s, floor_mib = time.process_time(), 0.0
    Counting.looked_at = 0
    connections = 0
    async with opened_door(tmp_path / "data", ["orders"], security=security) as door:
        orders = door.topics.get("orders")
        chance = random.Random(SEED)
        corpus = made_corpus(chance, orders.id, issuer)
        while Counting.looked_at < FRAMES:
            connections += TOGETHER
            await some_strangers(door, corpus, chance)
            if not floor_mib and Counting.looked_at >= FRAMES / 10:
                floor_mib = resident_mib()
        assert orders.partitions[0].end_offset == 0, SEED
        assert [topic.name for topic in door.topics.all()] == ["orders"], SEED
        assert not door.door.strangers._since, "connections that are gone are remembered"
        assert not door.peers.connections
    grown_mib = resident_mib() - floor_mib
    # In a short run the sanitizers have not filled their own memory yet.
    assert is_short() or grown_mib <= GROWTH_MIB_MAX, f"{grown_mib:.0f} MiB more than after a tenth of the frames"
    report(connections, time.process_time() - began_s, floor_mib, grown_mib)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Frames as `test_before_login` makes them, and logins of every mechanism in their order: the deeper ones need those before them."""

    harmless: list[bytes]
    """After which the connection goes on."""
    others: list[bytes]

    def stream(self, chance: random.Random) -> bytes:
        whole = chance.choices(self.harmless, k=int(chance.random() * 30))
        whole += chance.choices(self.others, k=1 + int(chance.random() * 3))
        if chance.random() < 0.6:
            place = int(chance.random() * len(whole))
            whole[place] = damaged(whole[place], chance)
        return b"".join(whole)


class Stranger:
    """A connection with a few frames, whole or damaged, in a few parts."""

    def __init__(self, door: OpenedDoor, corpus: Corpus, chance: random.Random) -> None:
        self._chance = chance
        self._stream = corpus.stream(chance)
        self._connection = Counting(door.peers, door.door, listener())
        self._wire = Wire(self._connection)
        self._connection.connection_made(self._wire)

    def go_on(self) -> bool:
        """Send as much as is taken; False once nothing more is to come of it."""
        login = self._connection._session.login
        while self._stream and not self._wire.is_closed:
            if not self._wire.is_read_from or (login is not None and login.under_way is not None):
                return True
            cut = len(self._stream) if self._chance.random() < 0.8 else 1 + int(self._chance.random() * 200)
            self._wire.feed(self._stream[:cut])
            self._stream = self._stream[cut:]
        if login is not None and login.under_way is not None:
            return True
        buffer = self._connection._buffer
        assert buffer is None or len(buffer) <= 2 * STRANGER_FRAME_MAX, SEED
        self._wire.close()
        return False


async def some_strangers(door: OpenedDoor, corpus: Corpus, chance: random.Random) -> None:
    """Side by side: a turn of the loop costs as much as a frame."""
    left = [Stranger(door, corpus, chance) for _ in range(TOGETHER)]
    while left := [each for each in left if each.go_on()]:
        await asyncio.sleep(0)
    while door.peers.connections:
        await asyncio.sleep(0)


@functools.cache
def listener() -> Listener:
    settings = ListenerSettings(
        name="kafka", door="kafka", listen="127.0.0.1:9092", sasl=(*MECHANISMS, "OAUTHBEARER"), principal=None
    )
    return Listener(settings, advertised=("localhost", 9092))


def made_corpus(chance: random.Random, topic_id: bytes, issuer: Issuer) -> Corpus:
    others = [_frame(chance, topic_id) for _ in range(CORPUS)]
    token = f"n,,\1auth=Bearer {issuer.token('alice', now_s=1)}\1\1".encode()
    for _ in range(CORPUS // 2):
        mechanism = chance.choice((*MECHANISMS, "OAUTHBEARER"))
        steps = [damaged(chance.choice((*TOKENS, token)), chance) for _ in range(chance.randint(1, 3))]
        others.append(conversation(mechanism, steps, is_bare=chance.random() < 0.3))
    words = ("librdkafka", "apache-kafka-java", "x" * 200)
    harmless = [
        bytes(encode_request(ApiVersionsRequest(word, "1.0"), version, chance.getrandbits(31), client))
        for word in words
        for version in range(5)
        for client in (None, "", "client", "c" * 250)
    ]
    harmless += [bytes(encode_request(SaslHandshakeRequest(each), 1, 7, "client")) for each in MECHANISMS] * 60
    harmless += [conversation("SCRAM-SHA-256", [TOKENS[0]], is_bare=False)] * 20
    return Corpus(harmless, others)


def conversation(mechanism: str, steps: list[bytes], *, is_bare: bool) -> bytes:
    whole = bytes(encode_request(SaslHandshakeRequest(mechanism), 0 if is_bare else 1, 7, "client"))
    for step in steps:
        if is_bare:
            whole += len(step).to_bytes(4, "big") + step
        else:
            whole += bytes(encode_request(SaslAuthenticateRequest(step), 2, 7, None))
    return whole


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """As in `test_kernels`, with fewer draws."""
    if not whole:
        return whole
    changed = bytearray(whole)
    for _ in range(1 + int(chance.random() * 3)):
        reach = len(changed) if chance.random() < 0.5 else min(len(changed), 90)
        place = int(chance.random() * reach)
        kind = chance.random()
        if kind < 0.35:
            edge = EDGES[int(chance.random() * len(EDGES))]
            changed[place : place + len(edge)] = edge
        elif kind < 0.5:
            changed[place:place] = EDGES[int(chance.random() * len(EDGES))]
        elif kind < 0.7:
            del changed[place : place + 1 + int(chance.random() * 8)]
        elif kind < 0.9:
            changed[place : place + 1] = bytes((chance.getrandbits(8),))
        else:
            del changed[place:]
    return bytes(changed)


def is_sanitized() -> bool:
    return "asan" in os.environ.get("LD_PRELOAD", "")


def is_short() -> bool:
    return is_sanitized() and FRAMES < 5_000_000


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def report(connections: int, cpu_s: float, floor_mib: float, grown_mib: float) -> None:
    sanitizers = "with" if is_sanitized() else "without"
    line = (
        f"{Counting.looked_at:,} frames in {connections:,} connections, seed {SEED}, {sanitizers} the address and undefined "
        f"behaviour sanitizers: {cpu_s:,.0f} s of CPU ({cpu_s / Counting.looked_at * 1e6:.0f} us a frame); "
        f"{floor_mib:.0f} MiB resident after a tenth of them, {grown_mib:+.1f} MiB at the end."
    )
    print(line)
    if REPORT:
        Path(REPORT).write_text(
            "# Frames of strangers\n\nWhat a listener that asks for a login reads before anybody has logged in, fuzzed by `make fuzz-strangers`\n"
            f"(Python {platform.python_version()}). No crash, nothing written, no connection left behind.\n\n{line}\n"
        )
