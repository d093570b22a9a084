"""Peers of the Logjam door that send very much at once, or take nothing of what is sent to them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq

from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.send_room import UNREAD_BYTES_MAX, SendRoom
from headrace.doors.logjam.server import FRAMES_AT_ONCE, FRAMES_MAX, Arriving

MIB = 1024 * 1024


NewSocket = Callable[[int], "zmq.Socket[bytes]"]


@pytest.fixture
def new_socket() -> Iterator[NewSocket]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets: list[zmq.Socket[bytes]] = []

    def make(kind: int) -> "zmq.Socket[bytes]":
        sockets.append(context.socket(kind))
        return sockets[-1]

    yield make
    for socket in sockets:
        socket.close(linger=0)
    context.term()


class Kept(Arriving):
    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.metrics = LogjamMetrics()
        super().__init__(socket, cast(Any, SimpleNamespace(metrics=self.metrics)))
        self.messages: list[list[bytes]] = []

    def handle(self, frames: list[bytes]) -> None:
        self.messages.append(frames)


def test_a_message_of_very_many_frames_is_taken_in_steps_and_not_kept(new_socket: NewSocket) -> None:
    pull, push = new_socket(zmq.PULL), new_socket(zmq.PUSH)
    pull.bind("inproc://frames")
    push.connect("inproc://frames")
    push.send_multipart([b"one"] * FRAMES_MAX)
    push.send_multipart([b""] * 50_000)
    push.send_multipart([b"after"])
    arriving = Kept(pull)
    calls = 0
    while arriving.take():
        calls += 1
        assert len(arriving._frames) <= FRAMES_MAX
    assert calls >= 50_000 // FRAMES_AT_ONCE
    assert arriving.messages == [[b"one"] * FRAMES_MAX, [b"after"]]
    assert (arriving.metrics.received_total, arriving.metrics.malformed_total) == (3, 1)


def test_what_waits_for_a_subscriber_is_bounded_in_bytes(new_socket: NewSocket) -> None:
    socket = new_socket(zmq.XPUB)
    room = SendRoom(socket, 1_000_000)
    for _ in range(500):
        room.send([b"x", bytes(MIB)])
    assert 16 <= int(socket.getsockopt(zmq.SNDHWM)) <= 2 * UNREAD_BYTES_MAX // MIB
    for _ in range(5_000):
        room.send([b"small"])
    assert int(socket.getsockopt(zmq.SNDHWM)) == 1_000_000


def test_a_subscriber_that_never_reads_takes_bounded_memory(new_socket: NewSocket) -> None:
    """It had every message that it was ever sent, up to a million of them."""
    socket, subscriber = new_socket(zmq.XPUB), new_socket(zmq.SUB)
    socket.setsockopt(zmq.SNDHWM, 1_000_000)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    subscriber.setsockopt(zmq.RCVHWM, 1)
    subscriber.setsockopt(zmq.RCVBUF, 65_536)
    subscriber.connect(f"tcp://127.0.0.1:{port}")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    assert socket.recv() == b"\x01"
    room = SendRoom(socket, 1_000_000)
    before = _resident_bytes()
    for _ in range(600):
        room.send([b"topic", bytes(MIB)])
    assert _resident_bytes() - before < 300 * MIB


def _resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
