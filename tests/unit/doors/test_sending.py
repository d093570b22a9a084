"""Answers on their way to a real socket, compiled and pure: all of them, whole, in order, whatever the client does meanwhile."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.aligned import LendablePages, lendable_pages
from headrace.doors import connection_set as module
from headrace.doors.connection import FramedConnection
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.sending import send_ready, send_through_transports
from headrace.doors.slots import Slot
from headrace.log.arena import ArenaPool
from headrace.records.batch import Buffer

MIB = 1024 * 1024

pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture(params=["compiled", "pure"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(module, "send_ready", send_through_transports)
    elif send_ready is send_through_transports:
        pytest.skip("the extension was not built")


class Answering(FramedConnection):
    """Every byte is a frame; the test fills the slots."""

    HEADER_SIZE = 1

    def __init__(self, peers: ConnectionSet) -> None:
        super().__init__(peers)
        self.asked: asyncio.Queue[Slot] = asyncio.Queue()

    def frame_size(self, view: memoryview, at: int) -> int:
        return 0

    def take_frame(self, frame: memoryview, resumed: str | None) -> None:
        self.asked.put_nowait(self.reserve())


class Client:
    """A client, the server's end of it, and the slots of what it has asked."""

    def __init__(self, raw: socket.socket, served: Answering) -> None:
        self._raw = raw
        self.served = served

    async def ask(self, count: int) -> list[Slot]:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._raw, b"?" * count)
        return [await self.served.asked.get() for _ in range(count)]

    async def receive(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        received = bytearray()
        while len(received) < size:
            part = await loop.sock_recv(self._raw, min(size - len(received), MIB))
            assert part, f"the end after {len(received)} of {size} bytes"
            received += part
        return bytes(received)

    async def is_at_end(self) -> bool:
        return await asyncio.get_running_loop().sock_recv(self._raw, 1) == b""

    def close(self) -> None:
        self._raw.close()


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    loop = asyncio.get_running_loop()
    peers = ConnectionSet("test")
    server = await loop.create_server(lambda: Answering(peers), "127.0.0.1", 0)
    raw = socket.socket()
    raw.setblocking(False)
    await loop.sock_connect(raw, server.sockets[0].getsockname())
    while not peers.connections:
        await turn_of_the_loop()
    (served,) = peers.connections
    assert isinstance(served, Answering)
    assert served._file_number >= 0, "or all of it goes through the transport"
    try:
        yield Client(raw, served)
    finally:
        raw.close()
        server.close()
        while peers.connections:
            await turn_of_the_loop()


async def test_answers_leave_in_the_order_of_the_questions() -> None:
    async with connected() as client:
        first, second, third = await client.ask(3)
        third.fill((b"three",))
        first.fill((b"one", b"and"))
        assert await client.receive(6) == b"oneand"
        second.fill((b"two",))
        assert await client.receive(8) == b"twothree"


async def test_an_answer_in_very_many_pieces() -> None:
    pieces = [bytes([number % 256]) * (number % 7) for number in range(1000)]
    async with connected() as client:
        slots = await client.ask(3)
        for slot in slots:
            slot.fill(pieces)
        whole = b"".join(pieces) * 3
        assert await client.receive(len(whole)) == whole


async def test_many_answers_at_once() -> None:
    async with connected() as client:
        slots = await client.ask(500)
        for number, slot in enumerate(slots):
            slot.fill((b"%04d" % number,))
        assert await client.receive(2000) == b"".join(b"%04d" % number for number in range(500))


async def test_what_the_socket_does_not_take_follows_later() -> None:
    """The client reads nothing at first: the system's buffers fill up in the middle of an answer."""
    large = random.Random(1).randbytes(8 * MIB)
    async with connected() as client:
        slots = await client.ask(3)
        slots[0].fill((b"head", memoryview(large)[: 5 * MIB], large[5 * MIB :]))
        slots[1].fill((b"next",))
        await turn_of_the_loop(3)
        slots[2].fill((b"last",))
        await turn_of_the_loop(3)
        assert await client.receive(8 * MIB + 12) == b"head" + large + b"nextlast"


def lendable(content: bytes) -> LendablePages:
    """Memory that has been sent so often that it is lent the next time."""
    memory = lendable_pages(len(content))
    memory[:] = content
    memory.copied_bytes = 4 * len(content)
    return memory


async def test_lent_memory_that_the_socket_does_not_take_follows_later() -> None:
    large = random.Random(2).randbytes(8 * MIB)
    memory = lendable(large)
    async with connected() as client:
        slots = await client.ask(2)
        view = memoryview(memory)
        slots[0].fill((b"head", view[: 3 * MIB + 61], b"middle", view[3 * MIB + 61 :], b"foot"))
        await turn_of_the_loop(3)
        slots[1].fill((b"next", view[:MIB], view[: 128 * 1024], view[:100]))
        whole = b"head" + large[: 3 * MIB + 61] + b"middle" + large[3 * MIB + 61 :] + b"foot"
        whole += b"next" + large[:MIB] + large[: 128 * 1024] + large[:100]
        assert await client.receive(len(whole)) == whole


async def test_a_slow_client_reads_what_was_sent_though_the_tail_has_moved_on() -> None:
    """Its bytes are still those of the chunk when the partition has long given that back."""
    pool = ArenaPool(1 << 30)
    chunk = pool.take(2 * MIB, None)
    chunk.view[:] = b"o" * chunk.size
    assert isinstance(chunk.memory, LendablePages)
    chunk.memory.copied_bytes = 4 * chunk.size
    async with connected() as client:
        (slot,) = await client.ask(1)
        slot.fill((b"head", chunk.view[:MIB]))
        del slot
        await turn_of_the_loop(3)
        pool.give_back(chunk)
        for _ in range(3):
            following = pool.take(2 * MIB, None)
            following.view[:] = b"n" * following.size
        assert await client.receive(MIB + 4) == b"head" + b"o" * MIB


async def test_memory_is_lent_to_the_fifth_who_reads_all_of_it(request: pytest.FixtureRequest) -> None:
    memory = lendable_pages(MIB)
    async with connected() as client:
        for reader in range(5):
            assert not memory.is_lent, reader
            (slot,) = await client.ask(1)
            slot.fill((memoryview(memory),))
            await client.receive(MIB)
        assert memory.is_lent == ("compiled" in request.node.name)


async def test_a_few_bytes_are_copied_and_the_memory_stays_fit_for_use() -> None:
    memory = lendable(b"x" * MIB)
    async with connected() as client:
        (slot,) = await client.ask(1)
        slot.fill((memoryview(memory)[: 100 * 1024], bytes(MIB)))
        await client.receive(MIB + 100 * 1024)
        assert not memory.is_lent


async def test_memory_of_an_answer_is_let_go_once_it_is_sent() -> None:
    memory = bytearray(b"x" * 1000)
    async with connected() as client:
        (slot,) = await client.ask(1)
        slot.fill((memoryview(memory),))
        assert await client.receive(1000) == b"x" * 1000
        del slot
        await turn_of_the_loop()
        memory.append(1)  # Refused while anybody still looks at it.


async def test_a_connection_that_ends_sends_what_is_answered_first() -> None:
    async with connected() as client:
        first, second, third = await client.ask(3)
        first.fill((b"one",))
        third.close()
        second.fill((b"two",))
        assert await client.receive(6) == b"onetwo"
        assert await client.is_at_end()


async def test_a_client_that_is_gone_hurts_nobody() -> None:
    async with connected() as client, connected() as other:
        (slot,) = await client.ask(1)
        (others,) = await other.ask(1)
        client.close()
        pieces: list[Buffer] = [bytes(MIB)] * 16
        slot.fill(pieces)
        others.fill((b"still here",))
        assert await other.receive(10) == b"still here"


async def test_questions_and_answers_at_random() -> None:
    chance = random.Random(7)
    large = lendable(chance.randbytes(MIB))

    def piece() -> Buffer:
        size = chance.choice([0, 1, 10, 1000, 70_000, 200_000])
        start = chance.randrange(MIB - size)
        return memoryview(large)[start : start + size] if size > 100_000 else chance.randbytes(size)

    async with connected() as client:
        for _ in range(60):
            slots = await client.ask(chance.randrange(1, 40))
            answers = [[piece() for _ in range(chance.choice([1, 1, 2, 5, 80]))] for _ in slots]
            order = list(range(len(slots)))
            chance.shuffle(order)
            for number in order:
                slots[number].fill(answers[number])
                if chance.random() < 0.3:
                    await turn_of_the_loop()
            whole = b"".join(piece for answer in answers for piece in answer)
            assert await client.receive(len(whole)) == whole
