"""Datagrams that no client should send: the node's memory is bounded, it answers no more than it must, and a client over TCP does not notice."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.canary import Canary, metric, rss_bytes
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.quic import Frames
from tests.support.quic_attacks import begin_and_leave, first_flight, flood, half_frames, noise, storm

from headrace.clients.connection import split_address
from headrace.clients.quic import QuicClient
from headrace.doors.quic.endpoint import HALF_OPEN_MAX, RETRY_ABOVE

MIB = 1024 * 1024
SECONDS = 1.5
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # Handshakes as many as they come: what else bounds them is what is tested.
    settings = {"quic.handshakes.per.second.max": 1000, "quic.connections.per.host.max": 200}
    with running_node(tmp_path_factory.mktemp("hostile") / "data", settings) as started:
        yield started


@pytest.fixture(autouse=True)
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.kafka) as singing:
        yield singing


@pytest.fixture
def target(node: NodeProcess) -> tuple[str, int]:
    return split_address(node.endpoints["quic"])


async def still_serves(node: NodeProcess) -> None:
    async with QuicClient(node.endpoints["quic"]) as client:
        frames = Frames()
        await client.open_stream(frames)
        await frames.hello()


def test_noise_is_dropped(node: NodeProcess, canary: Canary, target: tuple[str, int]) -> None:
    before = rss_bytes(node)
    canary.check_undisturbed_by(lambda: flood(target, noise(5), SECONDS))
    assert metric(node, "headrace_quic_dropped_total") > 0
    assert rss_bytes(node) - before < 150 * MIB
    eventually(lambda: metric(node, "headrace_quic_half_open") == 0, 30, "handshakes are forgotten")
    asyncio.run(still_serves(node))
    assert '"error"' not in node.log_text()


def test_handshakes_that_are_begun_and_left_are_bounded(
    node: NodeProcess, canary: Canary, target: tuple[str, int]
) -> None:
    flights = [first_flight() for _ in range(300)]
    retries, before = metric(node, "headrace_quic_retries_total"), rss_bytes(node)
    seen: list[float] = []

    def attack() -> None:
        begin_and_leave(target, flights)
        seen.append(metric(node, "headrace_quic_half_open"))

    canary.check_undisturbed_by(attack)
    assert RETRY_ABOVE <= max(seen) <= HALF_OPEN_MAX
    assert max(seen) < 2 * RETRY_ABOVE, "addresses that are not proven begin nothing"
    assert metric(node, "headrace_quic_retries_total") > retries + 200
    assert rss_bytes(node) - before < 100 * MIB
    # Who can prove where it is comes in meanwhile.
    asyncio.run(still_serves(node))
    eventually(lambda: metric(node, "headrace_quic_half_open") == 0, 30, "handshakes are forgotten")


def test_an_unproven_address_is_sent_three_times_what_it_sent(target: tuple[str, int]) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as attacker:
        attacker.settimeout(1.5)
        sent = received = 0
        for datagram in first_flight():
            attacker.sendto(datagram, target)
            sent += len(datagram)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                received += len(attacker.recv(65_535))
            except TimeoutError:
                continue
    assert 0 < received <= 3 * sent


def test_a_storm_of_addresses_costs_its_own_connection_alone(
    node: NodeProcess, canary: Canary, target: tuple[str, int]
) -> None:
    before = rss_bytes(node)

    canary.check_undisturbed_by(lambda: asyncio.run(storm(target, SECONDS)))
    assert rss_bytes(node) - before < 100 * MIB
    asyncio.run(still_serves(node))


def test_many_streams_of_half_a_frame_are_bounded(node: NodeProcess, canary: Canary) -> None:
    before = rss_bytes(node)

    canary.check_undisturbed_by(lambda: asyncio.run(half_frames(node.endpoints["quic"], SECONDS)))
    assert rss_bytes(node) - before < 450 * MIB
    eventually(lambda: metric(node, "headrace_quic_streams") == 0, 30, "streams of a client that is gone are closed")
    eventually(lambda: rss_bytes(node) - before < 100 * MIB, 30, "and what they held is free")


def test_one_address_does_not_leave_more_than_so_much_unfinished(node: NodeProcess) -> None:
    """Four streams bring ninety megabytes each of requests that would have a hundred."""

    async def bring() -> int:
        async with QuicClient(node.endpoints["quic"]) as client:
            await client.connect()
            many = [Frames() for _ in range(4)]
            for frames in many:
                stream = await client.open_stream(frames)
                stream.write(b"\x06\x00\x00\x00" + b"\x00\x00\x00\x09")
                stream.write(bytes(90 * MIB))
            given_up: set[int] = set()
            end = time.monotonic() + 30
            while time.monotonic() < end and not given_up:
                given_up = {number for number, frames in enumerate(many) if not frames.received.empty()}
                await asyncio.sleep(0.05)
            return len(given_up)

    assert asyncio.run(bring()) == 1
    assert "too many unfinished requests of one address" in node.log_text()


def test_one_address_has_so_many_connections(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"quic.connections.per.host.max": 3}
    with running_node(tmp_path_factory.mktemp("few") / "data", settings) as node:

        async def count() -> int:
            clients = [QuicClient(node.endpoints["quic"]) for _ in range(5)]
            done = await asyncio.gather(
                *(asyncio.wait_for(each.connect(), 3) for each in clients), return_exceptions=True
            )
            for each in clients:
                await each.close()
            return sum(not isinstance(each, BaseException) for each in done)

        assert asyncio.run(count()) == 3
        assert metric(node, "headrace_quic_turned_away_total") > 0
