"""What ends an mlog connection and what does not, time limits, hostile input, and how the client finds its leader."""

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.ports import kept_port
from tests.support.raw_socket import RawSocket

from headrace.clients import BlockingMlogClient, MlogClient, RetryPolicy
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import decode, encode, encode_frame
from headrace.wire.mlog.codes import MessageType
from headrace.wire.mlog.errors import ConnectionClosed, RPCError

ASK = encode(m.FindRaftLeaderRequest())


@pytest.fixture
def raw(node: NodeProcess) -> Iterator[RawSocket]:
    with RawSocket(node.endpoints["mlog"]) as connection:
        yield connection


@pytest.fixture
def bystander(node: NodeProcess) -> Iterator[RawSocket]:
    """Another client, who must not notice anything."""
    with RawSocket(node.endpoints["mlog"]) as connection:
        connection.send(ASK)
        assert isinstance(answer(connection), m.FindRaftLeaderResponse)
        yield connection
        connection.send(ASK)
        assert isinstance(answer(connection), m.FindRaftLeaderResponse)


def answer(connection: RawSocket) -> m.Message:
    (message_type, _), payload = connection.read_frame(">HI")
    return decode(message_type, payload)


@pytest.mark.requirement("R1.5", "R1.24", "C16")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack(">HI", 29, 2) + b"{}", "protocol: can not encode type: 29"),
        (struct.pack(">HI", 65535, 0), "protocol: can not encode type: 65535"),
        (struct.pack(">HI", 2, 4_194_305), "protocol: frame exceeds max size"),
        (b"\xff" * 6, "protocol: frame exceeds max size"),
        (encode_frame(2, b"{"), ""),
        (encode_frame(2, b"[]"), ""),
        (encode_frame(2, b'{"Topic":5}'), ""),
        (encode_frame(2, b'{"Value":"not base64!"}'), ""),
        (encode_frame(2, b'{"Topic":"\xff"}'), ""),
        (encode_frame(2, b""), ""),
        (encode_frame(2, b'{"X":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), ""),
        (b"GET / HTTP/1.1\r\n\r\n", ""),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_cannot_be_understood_gets_a_last_error(
    raw: RawSocket, bystander: RawSocket, data: bytes, message: str
) -> None:
    raw.send(data)
    last = answer(raw)
    assert isinstance(last, m.RPCErrorResponse)
    assert last.code == 0
    assert last.message.startswith(message)
    assert raw.is_closed_by_peer()


@pytest.mark.requirement("R1.70")
def test_a_failing_request_leaves_the_connection_usable(raw: RawSocket) -> None:
    for _ in range(3):
        raw.send(encode(m.FetchRequest(Topic="nonexistent")))
        assert isinstance(answer(raw), m.RPCErrorResponse)
    raw.send(ASK)
    assert isinstance(answer(raw), m.FindRaftLeaderResponse)


@pytest.mark.parametrize(
    "message_type", [t for t in MessageType if t.name.endswith("_RESP") or t is MessageType.RPC_ERROR]
)
def test_an_answer_sent_as_a_request_is_refused_not_ignored(raw: RawSocket, message_type: MessageType) -> None:
    raw.send(encode_frame(message_type, b"{}") + ASK)
    refused = answer(raw)
    assert isinstance(refused, m.RPCErrorResponse)
    assert "is no request" in refused.message
    assert isinstance(answer(raw), m.FindRaftLeaderResponse)


@pytest.mark.requirement("R1.6", "R1.7")
def test_requests_in_single_bytes_and_many_in_one_segment(raw: RawSocket) -> None:
    raw.send_slowly(ASK)
    assert isinstance(answer(raw), m.FindRaftLeaderResponse)
    raw.send(ASK * 700)
    assert all(isinstance(answer(raw), m.FindRaftLeaderResponse) for _ in range(700))


@pytest.mark.requirement("R1.6")
@pytest.mark.parametrize("cut", [3, 7])
def test_an_end_inside_a_frame_ends_the_connection(raw: RawSocket, bystander: RawSocket, cut: int) -> None:
    raw.send(ASK[:cut])
    raw.half_close()
    assert raw.is_closed_by_peer()


def test_pipelined_requests_are_answered_in_order(raw: RawSocket, topic: str) -> None:
    stream = b""
    for number in range(60):
        stream += encode(m.ProduceRequest(Topic=topic, Value=b"%d" % number, Acks=number % 3))
        stream += encode(m.FetchRequest(Topic=topic, Offset=number)) if number % 3 else b""
    threading.Thread(target=raw.send, args=(stream,)).start()
    for number in range(60):
        assert answer(raw) == m.ProduceResponse(Offset=number)
        if number % 3:
            assert answer(raw) == m.FetchResponse(Entry=m.LogEntry(Offset=number, Value=b"%d" % number))


@pytest.mark.requirement("X1.9")
def test_a_silent_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "data", {"mlog.idle.timeout.ms": 1_000}) as node,
        RawSocket(node.endpoints["mlog"]) as silent,
        RawSocket(node.endpoints["mlog"]) as dripping,
    ):
        dripping.send(ASK[:3])
        assert silent.is_closed_by_peer()
        assert dripping.is_closed_by_peer()


@pytest.mark.requirement("X1.9")
def test_the_default_time_limits() -> None:
    from headrace.doors.mlog.settings import MlogSettings

    settings = MlogSettings()
    assert (settings.idle_timeout_ms, settings.handler_timeout_ms, settings.ack_timeout_ms) == (300_000, 30_000, 5_000)


@pytest.mark.requirement("R1.72")
def test_an_expired_wait_is_16_and_a_moved_leader_4() -> None:
    from headrace import errors
    from headrace.doors.mlog.errors import code_of

    assert code_of(errors.TimedOut("x")) == 16
    assert code_of(errors.NotLeader("x")) == 4
    assert code_of(errors.StorageFull("x")) == 0
    assert code_of(RuntimeError("x")) == 0


@pytest.mark.requirement("R1.71")
def test_the_client_raises_the_servers_words(client: BlockingMlogClient) -> None:
    with pytest.raises(RPCError) as failed:
        client.produce("nonexistent", b"v")
    assert (failed.value.code, str(failed.value)) == (3, "Topic 'nonexistent' not found")


@pytest.mark.requirement("R1.74", "R1.75", "R1.76")
def test_the_client_finds_the_leader_again_after_a_restart(tmp_path: Path) -> None:
    patient = RetryPolicy(attempts_max=10, backoff_first_ms=50, backoff_max_ms=500)
    with (
        kept_port() as port,
        running_node(tmp_path / "data", {"listen.mlog": f"127.0.0.1:{port}"}) as node,
        # The first address leads nowhere: discovery goes on to the next.
        BlockingMlogClient(["127.0.0.1:1", f"127.0.0.1:{port}"], retry=patient) as client,
    ):
        client.create_topic("t")
        assert client.produce("t", b"before") == 0
        node.kill()
        node.start()
        assert client.produce("t", b"after") == 1


@pytest.mark.requirement("R1.78")
async def test_a_closed_client_says_so(node: NodeProcess) -> None:
    client = MlogClient([node.endpoints["mlog"]])
    await client.list_topics()
    await client.close()
    with pytest.raises(ConnectionClosed):
        await client.list_topics()


def test_a_flood_of_half_frames_disturbs_nobody(node: NodeProcess, bystander: RawSocket) -> None:
    flood = [RawSocket(node.endpoints["mlog"]) for _ in range(200)]
    for connection in flood:
        connection.send(struct.pack(">HI", 2, 4_194_304) + b'{"Topic":"')
    bystander.send(ASK)
    assert json.loads(bystander.read_frame(">HI")[1])["RaftLeaderAddr"] == node.endpoints["mlog"]
    for connection in flood:
        connection.close()
