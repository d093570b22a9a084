"""What ends a RustLog connection and what does not, order, hostile input, and what others notice of it."""

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.node import NodeProcess, eventually
from tests.support.raw_socket import RawSocket

from headrace.clients import BlockingRustLogClient

PING = b'\x00\x00\x00\x0f{"type":"Ping"}'
PONG = b'\x00\x00\x00\x0f{"type":"Pong"}'


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def request(**fields: Any) -> bytes:
    return framed(json.dumps(fields).encode())


def answer(connection: RawSocket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.read_frame(">I")[1])
    return found


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[RawSocket]:
    with RawSocket(node.endpoints["rustlog"]) as connection:
        yield connection


@pytest.fixture
def bystander(node: NodeProcess) -> Iterator[RawSocket]:
    """Another client, who must not notice anything."""
    with RawSocket(node.endpoints["rustlog"]) as connection:
        connection.send(PING)
        assert connection.read(len(PONG)) == PONG
        yield connection
        connection.send(PING)
        assert connection.read(len(PONG)) == PONG


@pytest.mark.requirement("R0.4", "R0.5", "R0.88", "R0.89", "R0.90", "R0.87", "R0.91", "C4", "C12")
@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 10_485_761),
        b"\xff\xff\xff\xff",
        struct.pack(">I", 0),
        framed(b"\xff\xfe\xfd"),
        framed(b'{"type":"Ping","x":"\xc3\x28"}'),
        framed(b'{"type":"Ping"'),
        framed(b"[]"),
        framed(b'"Ping"'),
        framed(b"null"),
        framed(b'{"type":"Nope", garbage'),
        framed(b'{"type":"Ping","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        b"\x00\x00\x00\x4a" + b'{"type":"Produce","topic":"logs","partition":0,"records":["SGVsbG8gV29ybGQ="]}',
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda data: repr(data[:14]),
)
def test_a_violation_gets_a_last_error_and_ends_the_connection(
    raw: RawSocket, bystander: RawSocket, data: bytes
) -> None:
    raw.send(data)
    assert answer(raw)["code"] == 400
    assert raw.is_closed_by_peer()


@pytest.mark.requirement("R0.92", "R0.93", "R0.94", "R0.102", "C4")
@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"type":7}',
        b'{"type":"Teleport"}',
        b'{"type":"Produce"}',
        b'{"type":"Produce","topic":"t","partition":-1,"records":[]}',
        b'{"type":"Produce","topic":"t","partition":0,"records":["?"]}',
        b'{"type":"Produce","topic":"a b","partition":0,"records":[""]}',
        b'{"type":"Fetch","group_id":"g","topic":"t","partition":0,"offset":"0","max_bytes":1}',
        b'{"type":"OffsetCommit","group_id":"g","topic":"t","partition":0,"offset":0}',
        b'{"type":"CreateTopic","topic":"t","partition_count":4294967296}',
    ],
)
def test_a_wrong_request_is_answered_and_the_connection_goes_on(raw: RawSocket, payload: bytes) -> None:
    raw.send(framed(payload))
    assert answer(raw)["code"] == 400
    raw.send(PING)
    assert raw.read(len(PONG)) == PONG


@pytest.mark.requirement("R0.7")
def test_requests_in_single_bytes_and_many_in_one_segment(raw: RawSocket) -> None:
    raw.send_slowly(PING)
    assert raw.read(len(PONG)) == PONG
    raw.send(PING * 1000)
    assert raw.read(len(PONG) * 1000) == PONG * 1000


@pytest.mark.requirement("R0.9", "R0.91")
@pytest.mark.parametrize("cut", [2, 4, 10])
def test_an_end_inside_a_frame_is_no_request(raw: RawSocket, bystander: RawSocket, cut: int) -> None:
    raw.send(PING[:cut])
    raw.half_close()
    assert raw.is_closed_by_peer()


@pytest.mark.requirement("R0.91")
def test_a_reset_disturbs_nobody(node: NodeProcess, bystander: RawSocket) -> None:
    with RawSocket(node.endpoints["rustlog"]) as connection:
        connection.send(PING * 100)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.requirement("R0.95")
def test_pipelined_requests_are_done_one_after_the_other(raw: RawSocket, topic: str) -> None:
    """Each fetch sees exactly what the produces before it have written, and nothing of those behind it."""
    place = {"topic": topic, "partition": 0}
    stream = b""
    for number in range(50):
        stream += request(type="Produce", **place, records=["YQ=="] * (number % 3 + 1))
        stream += request(type="Produce", topic=topic, partition=1, records=["Yg=="])
        stream += request(type="Produce", topic="nonexistent", partition=0, records=["Yw=="])
        stream += request(type="Fetch", group_id="", **place, offset=0, max_bytes=1 << 20)
    threading.Thread(target=raw.send, args=(stream,)).start()
    expected = 0
    for number in range(50):
        first, second, third, fetched = (answer(raw) for _ in range(4))
        assert (first["base_offset"], first["record_count"]) == (expected, number % 3 + 1)
        assert second["base_offset"] == number
        assert third["code"] == 404
        expected += number % 3 + 1
        assert fetched["next_offset"] == expected


@pytest.mark.requirement("R0.95")
def test_answers_come_also_after_the_client_has_closed_its_side(raw: RawSocket, topic: str) -> None:
    raw.send(request(type="Produce", topic=topic, partition=0, records=["YQ=="]))
    raw.send(request(type="Fetch", group_id="", topic=topic, partition=0, offset=0, max_bytes=100))
    raw.half_close()
    assert answer(raw)["type"] == "ProduceResponse"
    assert answer(raw)["next_offset"] == 1
    assert raw.is_closed_by_peer()


@pytest.mark.requirement("R0.96")
def test_a_client_that_does_not_read_is_held_back_by_tcp_alone(
    node: NodeProcess, client: BlockingRustLogClient, topic: str, bystander: RawSocket
) -> None:
    """Half a gigabyte asked for and not read: the server keeps little of it, and all of it comes when we read."""
    client.produce(topic, [os.urandom(1_000_000)])
    fetch = request(type="Fetch", group_id="", topic=topic, partition=0, offset=0, max_bytes=1 << 20)
    before = resident_bytes(node.pid)
    with RawSocket(node.endpoints["rustlog"]) as slow:
        slow.send(fetch * 400)
        time.sleep(1)
        assert resident_bytes(node.pid) - before < 100_000_000
        sizes = [len(slow.read_frame(">I")[1]) for _ in range(400)]
    assert min(sizes) > 1_300_000


@pytest.mark.requirement("R0.4", "R0.102")
def test_lying_lengths_cost_no_memory(node: NodeProcess, bystander: RawSocket) -> None:
    before = resident_bytes(node.pid)
    liars = [RawSocket(node.endpoints["rustlog"]) for _ in range(200)]
    for liar in liars:
        liar.send(struct.pack(">I", 10_485_760) + b"x")
    with RawSocket(node.endpoints["rustlog"]) as honest:
        honest.send(PING)
        assert honest.read(len(PONG)) == PONG
    # A buffer grows when bytes come, so 2 GB were announced and next to nothing was taken.
    assert resident_bytes(node.pid) - before < 100_000_000
    for liar in liars:
        liar.close()


@pytest.mark.requirement("R0.98")
def test_idle_connections_cost_little(node: NodeProcess) -> None:
    before = resident_bytes(node.pid)
    idle = []
    for _ in range(500):
        connection = RawSocket(node.endpoints["rustlog"])
        connection.send(PING)
        assert connection.read(len(PONG)) == PONG
        idle.append(connection)
    assert (resident_bytes(node.pid) - before) / len(idle) < 16_384
    for connection in idle:
        connection.close()


@pytest.mark.requirement("R0.86", "R0.87")
def test_connections_are_counted_until_they_are_closed(node: NodeProcess, client: BlockingRustLogClient) -> None:
    def active() -> float:
        return client.metrics().metrics["active_connections"]

    eventually(lambda: active() == 1, 60, "connections of other tests are still counted")
    with RawSocket(node.endpoints["rustlog"]) as connection:
        connection.send(PING)
        assert connection.read(len(PONG)) == PONG
        assert active() == 2
    eventually(lambda: active() == 1, 60, "the connection is still counted")


def test_a_broken_disk_is_503_and_a_full_one_507() -> None:
    from headrace import errors
    from headrace.doors.rustlog.errors import code_of

    assert code_of(errors.StorageFailed("x")) == 503
    assert code_of(errors.StorageFull("x")) == 507
    assert code_of(errors.NotLeader("x")) == 503
    assert code_of(RuntimeError("x")) == 500


@pytest.mark.requirement("R0.100")
def test_fields_of_the_future_are_ignored(raw: RawSocket, topic: str) -> None:
    raw.send(request(type="Produce", topic=topic, partition=0, records=["YQ=="], trace={"id": 7}, acks="all"))
    assert answer(raw)["type"] == "ProduceResponse"


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
