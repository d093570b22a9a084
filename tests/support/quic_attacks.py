"""Datagrams that no client should send, and how they are sent."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

from tests.support.quic import HELLO, HELLO_VERSION, Frames

from headrace.clients.quic import QuicClient, Trust
from headrace.quic.peers import KAFKA_ALPN, Quic, configured

Target = tuple[str, int]


def first_flight() -> list[bytes]:
    """What a client sends first; it never hears what is answered."""
    configuration = configured(is_client=True, alpn=[KAFKA_ALPN], idle_timeout_s=10)
    configuration.server_name = "localhost"
    quic = Quic(configuration=configuration)
    quic.connect(("127.0.0.1", 1), 0.0)
    return [datagram for datagram, _ in quic.datagrams_to_send(0.0)]


def flood(target: Target, next_datagram: Callable[[], bytes], seconds: float) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as attacker:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(50):
                attacker.sendto(next_datagram(), target)


def noise(seed: int) -> Callable[[], bytes]:
    """Random bytes, and first datagrams with random damage."""
    chance = random.Random(seed)
    flight = first_flight()

    def datagram() -> bytes:
        kind = chance.randrange(4)
        if kind == 0:
            return chance.randbytes(chance.randrange(1, 1500))
        if kind == 1:
            return bytes([0x40 | chance.randrange(64)]) + chance.randbytes(chance.randrange(8, 1400))
        damaged = bytearray(chance.choice(flight))
        for _ in range(chance.randrange(1, 20)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        return bytes(damaged[: chance.randrange(1, len(damaged))] if kind == 2 else damaged)

    return datagram


def begin_and_leave(target: Target, flights: list[list[bytes]]) -> None:
    """Handshakes from an address each, that nobody goes on with."""
    for flight in flights:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as attacker:
            for datagram in flight:
                attacker.sendto(datagram, target)
        time.sleep(0.002)


class Shifting:
    """A middlebox that gives every datagram of a client another source port."""

    def __init__(self, target: Target, ports: int) -> None:
        self._target = target
        self._inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._inside.bind(("127.0.0.1", 0))
        self._outside = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(ports)]
        self._client: tuple[str, int] | None = None
        self.is_shifting = False
        self.sent = self.received = 0
        self._is_over = False
        for each in (self._inside, *self._outside):
            each.settimeout(0.05)
        self._threads = [threading.Thread(target=self._forth, daemon=True)]
        self._threads += [threading.Thread(target=self._back, args=(each,), daemon=True) for each in self._outside]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._inside.getsockname()[1]}"

    def _forth(self) -> None:
        number = 0
        while not self._is_over:
            try:
                datagram, self._client = self._inside.recvfrom(65_535)
            except (TimeoutError, OSError):
                continue
            number += self.is_shifting
            self.sent += len(datagram)
            self._outside[number % len(self._outside)].sendto(datagram, self._target)

    def _back(self, way: socket.socket) -> None:
        while not self._is_over:
            try:
                datagram = way.recv(65_535)
            except (TimeoutError, OSError):
                continue
            self.received += len(datagram)
            if self._client is not None:
                self._inside.sendto(datagram, self._client)

    def close(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()
        for each in (self._inside, *self._outside):
            each.close()


async def storm(target: Target, seconds: float) -> None:
    """A client whose every datagram comes from another port."""
    with closing(Shifting(target, 40)) as shifting:
        async with QuicClient(shifting.address, trust=Trust(is_blind=True)) as client:
            frames = Frames()
            await client.open_stream(frames)
            await frames.hello()
            shifting.is_shifting = True
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                frames.send(HELLO, HELLO_VERSION)
                await asyncio.sleep(0.002)


async def half_frames(address: str, seconds: float) -> None:
    """A hundred streams that say that a hundred megabytes will come; some of them send as much as they may."""
    async with QuicClient(address) as client:
        node = await client.connect()
        for number in range(100):
            stream = node.open_stream(Frames())
            stream.write(b"\x06\x00\x00\x00" + b"\x00\x00\x00\x09" + bytes(1000))
            if number < 8:
                stream.write(bytes(8 * 1024 * 1024))
        await asyncio.sleep(seconds)
