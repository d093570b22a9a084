"""Strangers' bytes at the RustLog, mlog and Logjam doors: damaged messages, in codecs and over real sockets."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from tests.support.node import NodeProcess, running_node
from tests.support.zmq_agent import Peer

from headrace.clients import BlockingRustLogClient
from headrace.errors import HeadraceError
from headrace.wire.logjam.compression import Compression, compress, decompress
from headrace.wire.logjam.messages import PING_OK, build_data, build_ping, open_envelope, parse_data, parse_ping
from headrace.wire.logjam.meta import Meta
from headrace.wire.logjam.zmtp import ZmtpReader
from headrace.wire.mlog import codec as mlog
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.replication_batch import (
    ReplicationRecord,
    decode_replication_batch,
    decode_replication_batch_strictly,
    encode_replication_batch,
)
from headrace.wire.rustlog import codec as rustlog
from headrace.wire.rustlog import messages as r

ROUNDS = 3_000
META = Meta(created_ms=1_700_000_000_000, sequence=1)

RUSTLOG = [
    rustlog.encode(r.Produce(topic="fuzz", partition=0, records=[b"hello", bytes(20)])),
    rustlog.encode(r.Fetch(group_id="g", topic="fuzz", partition=0, offset=0, max_bytes=1000)),
    rustlog.encode(r.OffsetCommit(group="g", topic="fuzz", partition=0, offset=1)),
    rustlog.encode(r.CreateTopic(topic="fuzz2", partition_count=1)),
    rustlog.encode(r.MetricsFetch()),
]
MLOG = [
    mlog.encode(m.ProduceRequest(Topic="fuzz", Value=b"hello", Acks=1)),
    mlog.encode(m.ProduceBatchRequest(Topic="fuzz", Values=(b"a", b"b"), Acks=2)),
    mlog.encode(m.FetchBatchRequest(Topic="fuzz", Offset=0, MaxCount=10)),
    mlog.encode(m.CommitOffsetRequest(Topic="fuzz", Id="g", Offset=3)),
    mlog.encode(m.ReplicateRequest(Topic="fuzz", Offset=0)),
    mlog.encode(m.ListTopicsRequest()),
]


def damage(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(damaged) + 1)
        match chance.randrange(5):
            case 0:
                damaged[place : place + 1] = bytes([chance.choice((0, 1, 0x22, 0x5C, 0x7B, 0x80, 0xFF))])
            case 1:
                damaged[place:place] = chance.randbytes(chance.randint(1, 6))
            case 2:
                del damaged[place : place + chance.randint(1, 6)]
            case 3:
                damaged[place:place] = chance.choice((b"null", b"[[[[", b"1e999", b'"\\ud800"', b"-0", b"{}"))
            case _:
                damaged[place : place + 4] = chance.choice((b"\x00\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
    return bytes(damaged)


@pytest.mark.parametrize("sample", RUSTLOG, ids=lambda data: data[13:30].decode())
def test_damaged_rustlog_payloads_are_values_or_our_errors(sample: bytes) -> None:
    chance = random.Random(sample)
    for _ in range(ROUNDS):
        payload = damage(sample[4:], chance)
        for decode in (rustlog.decode_request, rustlog.decode_response):
            with contextlib.suppress(HeadraceError):
                decode(payload)


@pytest.mark.parametrize("sample", MLOG, ids=lambda data: data[6:24].decode())
def test_damaged_mlog_payloads_are_values_or_our_errors(sample: bytes) -> None:
    chance = random.Random(sample)
    for _ in range(ROUNDS):
        payload = damage(sample[6:], chance)
        for message_type in (sample[1], chance.randrange(40)):
            with contextlib.suppress(HeadraceError):
                mlog.decode(message_type, payload)


def test_damaged_replication_batches_are_values_or_our_errors() -> None:
    chance = random.Random(1)
    batch = encode_replication_batch([ReplicationRecord(n, bytes(n)) for n in range(10)])
    assert batch is not None
    for _ in range(ROUNDS):
        damaged = damage(batch, chance)
        for decode in (decode_replication_batch, decode_replication_batch_strictly):
            with contextlib.suppress(HeadraceError):
                decode(damaged)


@pytest.mark.parametrize("method", Compression)
def test_damaged_bodies_are_values_or_our_errors(method: Compression) -> None:
    chance = random.Random(method)
    body = compress(method, b'{"action":"Home#index"}' * 20)
    for _ in range(ROUNDS):
        with contextlib.suppress(HeadraceError):
            assert len(decompress(method, damage(body, chance), bytes_max=5_000)) <= 5_000


def test_damaged_logjam_messages_are_values_or_our_errors() -> None:
    chance = random.Random(2)
    samples = [build_data(b"a-b", b"logs", b"{}", META), [b"", *build_data(b"a-b", b"logs", b"{}", META)]]
    samples.append(build_ping(b"a-b", META))
    for _ in range(ROUNDS):
        frames = [damage(frame, chance) if chance.random() < 0.4 else frame for frame in chance.choice(samples)]
        if chance.random() < 0.3:
            del frames[chance.randrange(len(frames))]
        envelope = open_envelope(frames)
        with contextlib.suppress(HeadraceError):
            parse_data(envelope.frames, is_strict=chance.random() < 0.5)
        with contextlib.suppress(HeadraceError):
            parse_ping(envelope.frames)


def test_damaged_zmtp_is_items_or_our_errors() -> None:
    chance = random.Random(3)
    stream = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(48) + b"\x04\x06\x05READY" + b"\x01\x03a-b\x00\x02{}" * 5
    for _ in range(ROUNDS):
        reader = ZmtpReader()
        reader.receive(damage(stream, chance))
        with contextlib.suppress(HeadraceError):
            while reader.next_item() is not None:
                pass


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("fuzz") / "data") as running:
        with BlockingRustLogClient(running.endpoints["rustlog"]) as client:
            client.create_topic("fuzz")
        yield running


def resident_bytes(node: NodeProcess) -> int:
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(("door", "samples"), [("rustlog", RUSTLOG), ("mlog", MLOG)], ids=["rustlog", "mlog"])
def test_a_node_survives_damaged_frames(node: NodeProcess, door: str, samples: list[bytes]) -> None:
    """Whole frames with damaged payloads, damaged frames, and random bytes; then an honest client."""
    chance = random.Random(door)
    host, _, port = node.endpoints[door].rpartition(":")
    before = resident_bytes(node)
    for _ in range(300):
        with (
            socket.create_connection((host, int(port)), timeout=60) as connection,
            contextlib.suppress(OSError),
        ):
            for _ in range(chance.randint(1, 5)):
                connection.sendall(_stranger(chance, samples))
            connection.settimeout(0.02)
            connection.recv(65_536)
    with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
        client.produce("fuzz", [b"honest"])
        client.ping()
    assert node.process is not None
    assert node.process.poll() is None
    assert resident_bytes(node) - before < 200_000_000
    assert "unexpectedly" not in node.log_text()


def _stranger(chance: random.Random, samples: list[bytes]) -> bytes:
    sample = chance.choice(samples)
    match chance.randrange(3):
        case 0:
            return damage(sample, chance)
        case 1:
            return chance.randbytes(chance.randint(1, 200))
        case _:
            # The length is right, so the damage reaches the decoder.
            is_mlog = sample[0] == 0 and sample[2] == 0
            header_size = 6 if is_mlog and samples is MLOG else 4
            payload = damage(sample[header_size:], chance)
            return sample[: header_size - 4] + struct.pack(">I", len(payload)) + payload


def test_a_node_survives_damaged_messages(node: NodeProcess) -> None:
    chance = random.Random(4)
    with (
        Peer(zmq.DEALER, node.endpoints["logjam_router"]) as dealer,
        Peer(zmq.PUSH, node.endpoints["logjam_pull"]) as push,
    ):
        for _ in range(1_500):
            method = chance.choice(list(Compression))
            meta = Meta(compression=method, created_ms=META.created_ms, sequence=1)
            frames = build_data(b"fuzz-test", b"logs", compress(method, b'{"a":1}'), meta)
            frames = [damage(frame, chance) if chance.random() < 0.3 else frame for frame in frames]
            peer = chance.choice((dealer, push))
            peer.send(*([b"", *frames] if chance.random() < 0.5 else frames))
        # Answers come in order: behind that to the ping there is none to what is damaged.
        answer = dealer.ask(*build_ping(b"fuzz-test", META))
        while PING_OK not in answer:
            answer = dealer.next()
        reply = dealer.ask(b"", *build_data(b"fuzz-test", b"logs", b"{}", META))
    assert reply[-1] == b"202 Accepted"
    assert "unexpectedly" not in node.log_text()
