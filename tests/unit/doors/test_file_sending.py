"""Answers with ranges of files among their pieces, over a real socket: in order, whole, however slowly they are read."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.tier_node import eventually

from headrace.doors.connection import FramedConnection
from headrace.doors.connection_set import ConnectionSet
from headrace.doors.slots import Slot
from headrace.errors import MalformedRequest
from headrace.file_range import FileRange, OpenFile
from headrace.records.batch import Piece

SIZE = 8 * 1024 * 1024


class Asked(FramedConnection):
    """A frame is a size and a number; it is answered with the pieces of that number."""

    answers: dict[int, list[Piece]]
    slots: list[Slot]

    def frame_size(self, view: memoryview, at: int) -> int:
        size = int.from_bytes(view[at : at + 4], "big")
        if size != 1:
            raise MalformedRequest("a number is one byte")
        return size

    def take_frame(self, frame: memoryview, resumed: str | None) -> None:
        slot = self.reserve()
        self.slots.append(slot)
        slot.fill(self.answers[frame[4]])


class Server:
    def __init__(self) -> None:
        self.peers = ConnectionSet("test")
        self.connections: list[Asked] = []
        self.answers: dict[int, list[Piece]] = {}

    def connect(self) -> Asked:
        connection = Asked(self.peers)
        connection.answers, connection.slots = self.answers, []
        self.connections.append(connection)
        return connection


@pytest.fixture
async def served() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    listener = await asyncio.get_running_loop().create_server(server.connect, "127.0.0.1", 0)
    yield server, listener.sockets[0].getsockname()[1]
    listener.close()
    for connection in server.connections:
        connection.close()


def _file(tmp_path: Path, content: bytes) -> OpenFile:
    path = tmp_path / "object"
    path.write_bytes(content)
    return OpenFile(path)


def _open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def _request(*numbers: int) -> bytes:
    return b"".join((1).to_bytes(4, "big") + bytes([number]) for number in numbers)


async def _exchange(port: int, request: bytes, size: int, *, receive_buffer: int = 0) -> bytes:
    raw = socket.socket()
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=raw)
    writer.write(request)
    try:
        return await reader.readexactly(size)
    finally:
        writer.close()


async def test_pieces_of_files_and_memory_arrive_in_their_order(served: tuple[Server, int], tmp_path: Path) -> None:
    server, port = served
    content = os.urandom(SIZE)
    file = _file(tmp_path, content)
    server.answers[1] = [
        b"head",
        FileRange(file, 10, 3_000_000, 0),
        b"middle",
        FileRange(file, 5_000_000, 1000, 0),
        b"end",
    ]
    server.answers[2] = [b"small"]
    expected = b"head" + content[10:3_000_010] + b"middle" + content[5_000_000:5_001_000] + b"end"
    got = await _exchange(port, _request(2, 1, 2, 1), 2 * len(expected) + 10)
    assert got == b"small" + expected + b"small" + expected


async def test_a_client_that_reads_slowly_gets_all_of_it_and_what_it_asked_for_meanwhile(
    served: tuple[Server, int], tmp_path: Path
) -> None:
    server, port = served
    content = os.urandom(SIZE)
    server.answers[1] = [FileRange(_file(tmp_path, content), 0, SIZE, 0)]
    server.answers[2] = [b"small"]
    got = await _exchange(port, _request(1, 2, 1, 2), 2 * SIZE + 10, receive_buffer=4096)
    assert got == (content + b"small") * 2


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_open(
    served: tuple[Server, int], tmp_path: Path
) -> None:
    server, port = served
    server.answers[1] = [FileRange(_file(tmp_path, os.urandom(SIZE)), 0, SIZE, 0) for _ in range(4)]
    await _exchange(port, _request(1), 1000, receive_buffer=4096)
    (connection,) = server.connections
    await eventually(lambda: connection not in server.peers.connections)
    assert str(tmp_path / "object") in _open_files()
    server.answers.clear()
    connection.slots.clear()
    assert str(tmp_path / "object") not in _open_files()


async def test_a_file_that_was_cut_short_ends_the_connection_instead_of_shifting_the_stream(
    served: tuple[Server, int], tmp_path: Path
) -> None:
    server, port = served
    file = _file(tmp_path, os.urandom(SIZE))
    server.answers[1] = [FileRange(file, 0, SIZE, 0)]
    server.answers[2] = [b"small"]
    os.truncate(tmp_path / "object", 1_000_000)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await _exchange(port, _request(1, 2), 1_000_005)
