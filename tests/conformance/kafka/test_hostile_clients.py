"""Clients that send and read as no client should: bounded memory, and every other client unaffected."""

import contextlib
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.canary import Canary, metric, rss_bytes
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import Closed, RawKafka, batch_of, produce_request

from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest

TOPIC = "clients"
MIB = 1024 * 1024
BATCHES, BATCH_BYTES = 40, 900_000
"""Some forty megabytes to fetch, again and again."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("clients") / "data", {"wal.capacity.bytes": 256 * MIB}) as node:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
            client.create_topic("quiet")
            for number in range(BATCHES):
                client.produce(TOPIC, 0, batch_of([b"%d" % number * 100 + bytes(BATCH_BYTES)]))
        node.kill()  # So that nothing is in memory: every fetch below has to come from the disk.
        node.start()
        yield node


@pytest.fixture(autouse=True)
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.kafka) as canary:
        yield canary


@pytest.mark.requirement("R4.7")
def test_requests_may_come_byte_by_byte(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        for version in (0, 3):
            for byte in encode_request(ApiVersionsRequest(), version, 9, "slow"):
                client.send(bytes([byte]))
                time.sleep(0.001)
            assert client.read_frame()[:4] == struct.pack(">i", 9)


@pytest.mark.requirement("R4.7")
def test_two_requests_in_odd_pieces_are_two_requests(node: NodeProcess) -> None:
    first = encode_request(produce_request("pieces", 0, batch_of([bytes(100_000)])), 9, 1, "pieces")
    second = encode_request(ApiVersionsRequest(), 0, 2, "pieces")
    data = bytes(first + second)
    with RawKafka(node.kafka) as client:
        client.create_topic("pieces")
        for start in range(0, len(data), 30_011):
            client.send(data[start : start + 30_011])
            time.sleep(0.01)
        assert client.read_produced(1).error_code == 0
        assert client.read_frame()[:4] == struct.pack(">i", 2)


@pytest.mark.requirement("R4.7")
def test_thousands_of_pipelined_requests_are_answered_in_order(node: NodeProcess) -> None:
    count = 5000
    with RawKafka(node.kafka, timeout=30.0) as client:
        client.create_topic("pipelined")
        frames = [
            encode_request(produce_request("pipelined", 0, batch_of([b"%d" % number])), 9, number, "pipe")
            if number % 3 == 0
            else encode_request(ApiVersionsRequest(), 0, number, "pipe")
            for number in range(count)
        ]
        client.socket.setblocking(False)
        data, answers = memoryview(b"".join(frames)), bytearray()
        deadline = time.monotonic() + 60
        found: list[int] = []
        while len(found) < count and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                data = data[client.socket.send(data[: 1 << 16]) :] if data else data
            try:
                answers += client.socket.recv(1 << 18)
            except BlockingIOError:
                time.sleep(0.001)
            while len(answers) >= 8 and len(answers) >= 4 + (size := int.from_bytes(answers[:4])):
                found.append(int.from_bytes(answers[4:8]))
                del answers[: 4 + size]
        assert found == list(range(count))


def test_pipelined_fetches_are_all_answered_once_their_client_reads(node: NodeProcess) -> None:
    """The answers are larger than what we hold for a client: requests wait in its buffer, and are not forgotten."""
    count = 30
    with RawKafka(node.kafka, timeout=30.0, receive_buffer=32 * 1024) as client:
        sent = [client.send_fetch(TOPIC, 0, number % 4, max_bytes=4 * MIB) for number in range(count)]
        time.sleep(0.5)
        for correlation_id in sent:
            assert client.read_frame()[:4] == struct.pack(">i", correlation_id)


def test_clients_that_never_read_their_fetches_take_bounded_memory(node: NodeProcess) -> None:
    """Each asks two hundred times for all there is. Unbounded, this would be more than a hundred gigabytes."""
    before = rss_bytes(node)
    clients = [RawKafka(node.kafka, receive_buffer=16 * 1024) for _ in range(8)]
    for client in clients:
        client.socket.setblocking(False)
        for _ in range(200):
            try:
                client.send_fetch(TOPIC, 0, 0, max_bytes=60 * MIB)
            except Closed:
                break
    worst = 0
    deadline = time.monotonic() + 4.0
    while time.monotonic() < deadline:
        worst = max(worst, rss_bytes(node) - before)
        time.sleep(0.05)
    for client in clients:
        client.close()
    assert worst < len(clients) * 20 * MIB + 200 * MIB, f"{worst / MIB:.0f} MiB"
    eventually(lambda: rss_bytes(node) - before < 300 * MIB, 60.0, "memory did not come back")


def test_fetches_of_clients_that_left_do_not_stay_parked(node: NodeProcess) -> None:
    """A fetch may wait for weeks if it says so; not without its client."""
    for _ in range(300):
        with RawKafka(node.kafka) as client:
            client.send_fetch("quiet", 0, 0, wait_ms=2**31 - 1)
    eventually(lambda: metric(node, "headrace_fetches_waiting") <= 2, 60.0, "fetches wait for clients that are gone")


def test_half_open_connections_and_floods_leave_others_alone(node: NodeProcess) -> None:
    before = rss_bytes(node)
    sockets: list[socket.socket] = []
    host, _, port = node.kafka.rpartition(":")
    try:
        for number in range(1500):
            one = socket.create_connection((host, int(port)), timeout=30)
            sockets.append(one)
            if number % 3 == 0:
                one.sendall(struct.pack(">i", 1000) + b"half a req")
            elif number % 3 == 1:
                one.shutdown(socket.SHUT_WR)
        with RawKafka(node.kafka) as client:
            assert client.api_versions().error_code == 0
        assert rss_bytes(node) - before < 150 * MIB
    finally:
        for each in sockets:
            each.close()
    eventually(lambda: metric(node, "headrace_kafka_connections") < 20, 60.0, "connections were not let go")


def test_connections_that_come_and_go_are_forgotten(node: NodeProcess) -> None:
    before = rss_bytes(node)
    for number in range(2000):
        one = RawKafka(node.kafka)
        if number % 2:
            one.send(struct.pack(">i", 50_000_000) + bytes(5000))
        # A reset, not a goodbye: nothing that was on its way arrives.
        one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    eventually(lambda: metric(node, "headrace_kafka_connections") < 20, 60.0, "connections were not let go")
    assert rss_bytes(node) - before < 100 * MIB


def test_a_connection_that_falls_silent_is_closed_unless_it_waits_for_an_answer(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", {"connections.max.idle.ms": 1000}) as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("silent")
        silent, half = RawKafka(node.kafka), RawKafka(node.kafka)
        half.send(b"\0\0")
        with RawKafka(node.kafka) as waiting:
            parked = waiting.send_fetch("silent", 0, 0, wait_ms=3000)
            assert silent.is_closed_by_peer()
            assert half.is_closed_by_peer()
            assert waiting.read_frame()[:4] == struct.pack(">i", parked)
        silent.close()
        half.close()


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
def test_a_flood_beyond_the_open_file_limit_leaves_files_for_the_node(tmp_path: Path) -> None:
    """Clients inside keep working, uploads included: the ring is small and goes round several times."""
    program = ["prlimit", "--nofile=200:200", sys.executable, "-m", "headrace"]
    crowded = NodeProcess(tmp_path / "data", {"wal.capacity.bytes": 4 * MIB}, program=program)
    flood: list[socket.socket] = []
    try:
        crowded.start()
        host, _, port = crowded.kafka.rpartition(":")
        with RawKafka(crowded.kafka) as inside:
            inside.create_topic("crowded")
            flood += [socket.create_connection((host, int(port)), timeout=30) for _ in range(400)]
            for _ in range(600):
                assert inside.produce("crowded", 0, batch_of([bytes(20_000)])).error_code == 0
            with pytest.raises(Closed), RawKafka(crowded.kafka) as late:
                late.api_versions()
        for each in flood:
            each.close()
        eventually(lambda: _answers(crowded), 60.0, "nobody is let in though there is room again", crowded.log_text)
        assert metric(crowded, "headrace_kafka_turned_away_total") > 0
        assert "nearly out of files" in crowded.log_text()
    finally:
        crowded.kill()


@pytest.mark.parametrize("listener", ["admin", "logjam_pull", "logjam_pub", "rustlog", "mlog"])
def test_idle_connections_to_any_listener_leave_files_for_the_node(tmp_path: Path, listener: str) -> None:
    """They used up the files until a checkpoint failed and the node exited."""
    program = ["prlimit", "--nofile=200:200", sys.executable, "-m", "headrace"]
    crowded = NodeProcess(tmp_path / "data", {"wal.capacity.bytes": 4 * MIB}, program=program)
    flood: list[socket.socket] = []
    try:
        crowded.start()
        host, _, port = crowded.endpoints[listener].rpartition(":")
        with RawKafka(crowded.kafka) as inside:
            inside.create_topic("crowded")
            for _ in range(400):
                with contextlib.suppress(OSError):
                    flood.append(socket.create_connection((host, int(port)), timeout=30))
            for _ in range(400):
                assert inside.produce("crowded", 0, batch_of([bytes(20_000)])).error_code == 0
            open_files = len(list(Path(f"/proc/{crowded.pid}/fd").iterdir()))
            assert open_files < 190, "files are left for the node"
    finally:
        for each in flood:
            each.close()
        crowded.kill()


def _answers(node: NodeProcess) -> bool:
    with contextlib.suppress(Closed), RawKafka(node.kafka) as client:
        return client.api_versions().error_code == 0
    return False
