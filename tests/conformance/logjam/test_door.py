"""What the Logjam door does with messages: replies, records, what it forwards, and what it refuses."""

import gzip
import json
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import snappy
import zmq
from confluent_kafka import Consumer, TopicPartition
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.zmq_agent import Peer

from headrace.clients import (
    AsyncLogjamClient,
    BlockingRustLogClient,
    LogjamClient,
    LogjamPushClient,
    LogjamSubscriber,
)
from headrace.clients.logjam import BadRequest
from headrace.wire.logjam.compression import Compression, compress
from headrace.wire.logjam.messages import DataMessage
from headrace.wire.logjam.meta import Meta, decode_meta, encode_meta

Payloads = Callable[[str, int], list[bytes]]


def meta(sequence: int = 1, *, compression: int = 0, device: int = 0, created_ms: int | None = None) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return encode_meta(
        Meta(
            compression=compression,
            device_number=device,
            created_ms=now_ms if created_ms is None else created_ms,
            sequence=sequence,
        )
    )


def number(log: BlockingRustLogClient, name: str) -> float:
    return log.metrics().metrics[f"headrace_logjam_{name}"]


@pytest.mark.requirement("R2.1", "R2.2", "R2.6", "R2.10", "R2.12", "R2.13", "R2.17")
def test_requests_are_accepted_in_order_and_mixed_with_messages(dealer: Peer, stored: Payloads, app_env: str) -> None:
    name = app_env.encode()
    for index in range(20):
        dealer.send(name, b"logs.x", b'{"async":%d}' % index, meta(2 * index + 1))
        dealer.send(b"", name, b"logs.x", b'{"request":%d}' % index, meta(2 * index + 2))
    assert [dealer.receive() for _ in range(20)] == [[name, b"202 Accepted"]] * 20
    assert dealer.receive(100) is None
    bodies = [json.loads(body) for body in stored(app_env, 40)]
    assert bodies == [each for index in range(20) for each in ({"async": index}, {"request": index})]


@pytest.mark.requirement("R2.3", "R2.5", "R2.9", "R2.44", "C50")
def test_pushed_messages_are_stored_and_never_answered(push: Peer, stored: Payloads, app_env: str) -> None:
    push.send(app_env.encode(), b"logs.x", b'{"n":1}', meta())
    push.send(app_env.encode(), b"logs.x", b'{"n":"no meta"}')
    push.send(app_env.encode(), b"logs.x", b'{"n":2}', meta(2))
    assert stored(app_env, 2) == [b'{"n":1}', b'{"n":2}']


@pytest.mark.requirement("R2.4", "R2.17")
def test_many_clients_get_their_own_replies(node: NodeProcess, stored: Payloads, app_env: str) -> None:
    clients = [Peer(zmq.DEALER, node.endpoints["logjam_router"]) for _ in range(20)]
    for index, client in enumerate(clients):
        client.send(b"", b"%s" % app_env.encode() if index % 2 else b"", b"logs", b"{}", meta())
    for index, client in enumerate(clients):
        reply = client.receive()
        assert reply is not None
        assert reply[-1] == (b"202 Accepted" if index % 2 else b"400 Bad Request")
        client.close()
    stored(app_env, 10)


@pytest.mark.requirement("R2.8", "R2.26", "C62")
def test_a_message_becomes_a_record_with_key_headers_and_time(
    node: NodeProcess, dealer: Peer, stored: Payloads, app_env: str
) -> None:
    created_ms = time.time_ns() // 1_000_000 - 5_000
    body = b'{"action":"Home#index"}'
    dealer.ask(b"", app_env.encode(), b"logs.page", zlib.compress(body), meta(7, compression=1, created_ms=created_ms))
    stored(app_env, 1)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(f"logjam-{app_env}", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert (message.offset(), message.key(), message.value()) == (0, b"logs.page", body)
    assert message.timestamp()[1] == created_ms
    assert dict(message.headers()) == {
        "app-env": app_env.encode(),
        "topic": b"logs.page",
        "compression": b"1",
        "device": b"0",
        "created-ms": b"%d" % created_ms,
        "sequence": b"7",
    }


@pytest.mark.requirement("R2.11", "R2.14", "R2.15", "R2.16", "R2.19", "R2.35", "C46")
def test_bad_requests_are_answered_400_and_not_stored(
    node: NodeProcess, dealer: Peer, log: BlockingRustLogClient, app_env: str
) -> None:
    name, good = app_env.encode(), meta()
    before = number(log, "bad_requests_total")
    cases: list[tuple[bytes, ...]] = [
        (name, b"logs", b"{}"),
        (name, b"logs", b"{}", b""),
        (name, b"logs", b"{}", good[:23]),
        (name, b"logs", b"{}", b"\xca\xbe" + good[2:]),
        (name, b"logs", b"{}", good[:3] + b"\x02" + good[4:]),
        (name, b"logs", b"{}", good, b"extra"),
        (name, b"unknown", b"{}", good),
        (b"noenvironment", b"logs", b"{}", good),
        (b"", b"logs", b"{}", good),
        (name,),
        (),
    ]
    for frames in cases:
        reply = dealer.ask(b"", *frames)
        assert reply[-1] == b"400 Bad Request", frames
        assert reply[:-1] == [frames[0] if frames else b""]
    assert number(log, "bad_requests_total") == before + len(cases)
    assert f"logjam-{app_env}" not in {topic.name for topic in log.list_topics()}


@pytest.mark.requirement("R2.9", "R2.16", "C46")
def test_bad_messages_are_dropped_and_counted(
    dealer: Peer, push: Peer, log: BlockingRustLogClient, stored: Payloads, app_env: str
) -> None:
    malformed, misnamed = number(log, "malformed_total"), number(log, "misnamed_total")
    for peer in (dealer, push):
        peer.send(app_env.encode(), b"unknown", b"{}", meta())
        peer.send(b"nope", b"logs", b"{}", meta())
        peer.send(app_env.encode(), b"logs", b"{}", b"bad meta")
        peer.send(app_env.encode(), b"logs", b"{}", meta())
    assert stored(app_env, 2) == [b"{}", b"{}"]
    assert number(log, "misnamed_total") == misnamed + 4
    assert number(log, "malformed_total") == malformed + 2
    assert dealer.receive(50) is None


@pytest.mark.requirement("R2.32", "R2.35", "C43", "C44")
def test_short_meta_frames_and_swapped_tags_are_understood(dealer: Peer, stored: Payloads, app_env: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    short = struct.pack(">HBBHQQ", 0xCABD, 0, 1, 0, now_ms, 1)
    assert len(short) == 22
    swapped = b"\xbd\xca" + meta()[2:]
    for frame in (short, swapped):
        assert dealer.ask(b"", app_env.encode(), b"logs", b"{}", frame)[-1] == b"202 Accepted"
    stored(app_env, 2)


@pytest.mark.requirement("R2.30", "R2.36", "R2.37", "X2.3", "C48")
def test_every_compression_is_stored_as_the_same_json(push: Peer, stored: Payloads, app_env: str) -> None:
    body = json.dumps({"action": "Home#index", "text": "x" * 2_000}).encode()
    bodies = [
        (0, body),
        (1, zlib.compress(body)),
        (1, gzip.compress(body)),
        (2, snappy.compress(body)),
        (3, compress(Compression.LZ4, body)),
    ]
    for sequence, (method, compressed) in enumerate(bodies, 1):
        push.send(app_env.encode(), b"logs", compressed, meta(sequence, compression=method))
    assert stored(app_env, 5) == [body] * 5


@pytest.mark.requirement("R2.38", "C49")
def test_undecodable_bodies_are_counted_and_not_stored(
    dealer: Peer, log: BlockingRustLogClient, stored: Payloads, app_env: str
) -> None:
    before = number(log, "undecodable_total")
    failed = number(log, "accepted_then_failed_total")
    bomb = zlib.compress(bytes(200_000_000), 9)
    bad: list[tuple[int, bytes]] = [
        (9, b"{}"),
        (1, b"not zlib"),
        (2, b"\xff" * 20),
        (3, b"\xff\xff\xff\xff\x00"),
        (1, bomb),
        (2, b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 50),
        (0, b"not json"),
        (0, b"[]"),
        (0, b'{"a":"\xff"}'),
        (0, b"[" * 500_000),
    ]
    for method, body in bad:
        # 202 all the same: the reply is given before the body is looked at.
        reply = dealer.ask(b"", app_env.encode(), b"logs", body, meta(compression=method))
        assert reply[-1] == b"202 Accepted"
    dealer.ask(b"", app_env.encode(), b"logs", b'{"good":1}', meta())
    assert stored(app_env, 1) == [b'{"good":1}']
    assert number(log, "undecodable_total") == before + len(bad)
    assert number(log, "accepted_then_failed_total") == failed + len(bad)


@pytest.mark.requirement("R2.42", "R2.43")
@pytest.mark.parametrize("created_ms", [0, 1_470_900_000_000, 2**64 - 1, 2**63])
def test_any_creation_time_is_taken_and_none_spoils_its_neighbours(
    push: Peer, stored: Payloads, app_env: str, created_ms: int
) -> None:
    push.send(app_env.encode(), b"logs", b'{"n":1}', meta(1))
    push.send(app_env.encode(), b"logs", b'{"n":2}', meta(2, created_ms=created_ms))
    push.send(app_env.encode(), b"logs", b'{"n":3}', meta(3))
    assert len(stored(app_env, 3)) == 3


@pytest.mark.requirement("R2.7", "R2.18", "R2.27", "X2.4")
def test_accepted_messages_are_published_unchanged_with_a_new_number(
    node: NodeProcess, push: Peer, app_env: str
) -> None:
    body = zlib.compress(b'{"a":1}')
    with Peer(zmq.SUB, node.endpoints["logjam_pub"], subscribe=app_env.encode()) as subscriber:
        subscriber.socket.setsockopt(zmq.SUBSCRIBE, b"heartbeat")
        received = _until_subscribed(subscriber, push, app_env)
        push.send(b"other-production", b"logs", b"{}", meta(5))
        push.send(app_env.encode(), b"nonsense", b"{}", meta(6))
        push.send(app_env.encode(), b"javascript.x", body, meta(99, compression=1, created_ms=12345))
        push.send(app_env.encode(), b"events", b"{}", meta(100, created_ms=0))
        first = _through_the_next(subscriber, app_env)[-1]
        beats_and_second = _through_the_next(subscriber, app_env)
    assert first[:3] == [app_env.encode(), b"javascript.x", body]
    published = decode_meta(first[3])
    assert (published.compression, published.device_number, published.created_ms) == (1, 4711, 12345)
    # Filtered by the subscription: the number of the one in between is missing, as it should be.
    assert published.sequence > decode_meta(received[3]).sequence + 1
    second = beats_and_second[-1]
    assert second[:3] == [app_env.encode(), b"events", b"{}"]
    numbers = [decode_meta(frames[3]).sequence for frames in beats_and_second]
    assert numbers == [published.sequence + 1 + index for index in range(len(numbers))]
    assert abs(decode_meta(second[3]).created_ms - time.time_ns() // 1_000_000) < 60_000


def _until_subscribed(subscriber: Peer, push: Peer, app_env: str) -> list[bytes]:
    """Subscribing takes a moment; until then messages pass us by. Gives the last of the trials, behind which nothing comes."""

    def is_heard() -> bool:
        push.send(app_env.encode(), b"logs", b'{"trial":1}', meta())
        return any(frames[0] != b"heartbeat" for frames in iter(lambda: subscriber.receive(100), None))

    eventually(is_heard, 60, "the subscription did not arrive")
    push.send(app_env.encode(), b"logs", b'{"trial":"last"}', meta())
    while (found := _through_the_next(subscriber, app_env)[-1])[2] != b'{"trial":"last"}':
        pass
    return found


def _through_the_next(subscriber: Peer, app_env: str) -> list[list[bytes]]:
    """The heartbeats before the next message of the application, and that message."""
    found: list[list[bytes]] = []
    while not found or found[-1][0] == b"heartbeat":
        frames = subscriber.receive()
        assert frames is not None, f"nothing of {app_env} is published"
        assert frames[0] in (b"heartbeat", app_env.encode())
        found.append(frames)
    return found


@pytest.mark.requirement("X2.5", "X2.6")
def test_heartbeats_number_on(node: NodeProcess) -> None:
    # All that is published counts on, also what is left of another test.
    with Peer(zmq.SUB, node.endpoints["logjam_pub"], subscribe=b"") as subscriber:
        published: list[list[bytes]] = []
        while sum(frames[0] == b"heartbeat" for frames in published) < 2:
            frames = subscriber.receive()
            assert frames is not None
            published.append(frames)
    first = next(frames for frames in published if frames[0] == b"heartbeat")
    port = node.endpoints["logjam_pub"].rpartition(":")[2]
    assert first[1].startswith(b"tcp://")
    assert first[1].endswith(f":{port}".encode())
    assert first[2] == b"{}"
    assert decode_meta(first[3]).device_number == 4711
    numbers = [decode_meta(frames[3]).sequence for frames in published]
    assert numbers == [numbers[0] + index for index in range(len(numbers))]


@pytest.mark.requirement("X2.2")
def test_ping(dealer: Peer) -> None:
    reply = dealer.ask(b"", b"ping", b"myapp-production", b"{}", meta())
    assert reply[:2] == [b"ping", b"200 OK"]
    assert reply[2]
    assert dealer.ask(b"", b"ping", b"myapp-production", b"{}", b"bad") == [b"ping", b"400 Bad Request"]
    assert dealer.ask(b"", b"ping") == [b"ping", b"400 Bad Request"]


@pytest.mark.requirement("X2.6")
def test_gaps_in_what_devices_send_are_counted(
    push: Peer, log: BlockingRustLogClient, stored: Payloads, app_env: str
) -> None:
    before = number(log, "lost_total")
    for sequence in (1, 2, 5, 6, 3):
        push.send(app_env.encode(), b"logs", b"{}", meta(sequence, device=77))
    for sequence in (1, 50):
        push.send(app_env.encode(), b"logs", b"{}", meta(sequence, device=0))
    stored(app_env, 7)
    assert number(log, "lost_total") == before + 2


@pytest.mark.requirement("R2.39", "R2.41", "R2.42", "R2.44")
def test_the_shipped_clients(node: NodeProcess, stored: Payloads, app_env: str) -> None:
    router, pull, pub = (f"tcp://{node.endpoints[f'logjam_{name}']}" for name in ("router", "pull", "pub"))
    with (
        LogjamSubscriber(pub, app_env_prefix=app_env) as subscriber,
        LogjamClient(router, compression=Compression.SNAPPY, timeout_ms=60_000) as dealer,
        LogjamPushClient(pull, compression=Compression.ZLIB) as push,
    ):
        assert dealer.ping(app_env)
        dealer.request(app_env, "logs", b'{"n":1}')
        dealer.send(app_env, "logs", b'{"n":2}')
        with pytest.raises(BadRequest, match="400 Bad Request"):
            dealer.request(app_env, "nonsense", b"{}")
        stored(app_env, 2)
        push.send(app_env, "logs", b'{"n":3}')
        assert [json.loads(body)["n"] for body in stored(app_env, 3)] == [1, 2, 3]
        heard: list[DataMessage] = []

        def is_heard() -> bool:
            """A subscription takes a moment to arrive, and what was sent before is nobody's."""
            push.send(app_env, "logs", b'{"n":4}')
            heard.extend(iter(lambda: subscriber.receive(timeout_ms=100), None))
            return bool(heard)

        eventually(is_heard, 60, "nothing is published")
        assert {message.stream.app_env for message in heard} == {app_env}


@pytest.mark.requirement("R2.17", "R2.39")
async def test_the_asynchronous_client(node: NodeProcess, app_env: str) -> None:
    import asyncio

    async with AsyncLogjamClient(f"tcp://{node.endpoints['logjam_router']}", timeout_ms=60_000) as client:
        assert await client.ping(app_env)
        topics = ["logs" if n % 3 else "nonsense" for n in range(30)]
        outcomes = await asyncio.gather(
            *(client.request(app_env, topic, b"{}") for topic in topics), return_exceptions=True
        )
        assert [isinstance(each, BadRequest) for each in outcomes] == [topic != "logs" for topic in topics]
        await client.send(app_env, "logs", b"{}")


@pytest.mark.requirement("R2.39", "R2.41", "R2.42")
def test_what_a_client_writes_into_its_meta_frame() -> None:
    context = zmq.Context()
    router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    with LogjamClient(f"tcp://127.0.0.1:{port}") as client:
        before = time.time_ns() // 1_000_000
        for _ in range(3):
            client.send("a-b", "logs", b"{}")
        metas = [decode_meta(router.recv_multipart()[4]) for _ in range(3)]
        after = time.time_ns() // 1_000_000
    router.close()
    context.term()
    assert [each.sequence for each in metas] == [1, 2, 3]
    assert {each.device_number for each in metas} == {0}
    assert all(before <= each.created_ms <= after for each in metas)


@pytest.mark.requirement("R2.20", "R2.21", "C45", "C47", "C50")
def test_strict_names_old_replies_and_three_frames(tmp_path: Path) -> None:
    settings = {
        "logjam.strict_names": "true",
        "logjam.reply.form": "empty",
        "logjam.accept.three.frames": "true",
        "logjam.partitions": 3,
    }
    with (
        running_node(tmp_path / "data", settings) as node,
        Peer(zmq.DEALER, node.endpoints["logjam_router"]) as dealer,
        Peer(zmq.PUSH, node.endpoints["logjam_pull"]) as push,
        Peer(zmq.REQ, node.endpoints["logjam_router"]) as req,
        BlockingRustLogClient(node.endpoints["rustlog"]) as log,
    ):
        assert dealer.ask(b"", b"app-env", b"logs", b"{}", meta()) == [b"", b"202 Accepted"]
        assert dealer.ask(b"", b"app2-env", b"logs", b"{}", meta()) == [b"", b"400 Bad Request"]
        assert dealer.ask(b"", b"app-env", b"mobile", b"{}", meta()) == [b"", b"400 Bad Request"]
        assert req.ask(b"app-env", b"logs", b"{}", meta()) == [b"202 Accepted"]
        push.send(b"app-env", b"logs", b'{"request_id":"1"}')

        def total() -> int:
            if not log.list_topics():
                return 0
            return sum(each.high_watermark for each in log.describe_topic("logjam-app-env").partitions)

        eventually(lambda: total() == 3, 60, "three messages", lambda: str(total()))
        assert len(log.describe_topic("logjam-app-env").partitions) == 3


@pytest.mark.requirement("X2.7")
def test_default_ports_and_high_water_marks() -> None:
    from headrace.doors.logjam.settings import LogjamSettings

    settings = LogjamSettings()
    listens = (settings.listen_router, settings.listen_pull, settings.listen_pub, settings.listen_live)
    assert [listen.rpartition(":")[2] for listen in listens] == ["9604", "9605", "9606", "9607"]
    assert (settings.receive_high_water_mark, settings.send_high_water_mark) == (100_000, 1_000_000)


def test_too_many_streams_are_refused_by_count(tmp_path: Path) -> None:
    """Names come from the network: without a bound one flood would fill the metastore with topics."""
    with (
        running_node(tmp_path / "data", {"logjam.streams.max": 3}) as node,
        Peer(zmq.PUSH, node.endpoints["logjam_pull"]) as push,
        BlockingRustLogClient(node.endpoints["rustlog"]) as log,
    ):
        for index in range(10):
            push.send(b"app%d-x" % index, b"logs", b"{}", meta())
        eventually(lambda: number(log, "dropped_total") == 7, 60, "seven dropped messages")
        eventually(lambda: number(log, "stored_total") == 3, 60, "three stored messages")
        assert len(log.list_topics()) == 3


def test_hostile_frames_disturb_nobody(node: NodeProcess, dealer: Peer, app_env: str) -> None:
    import os
    import socket

    host, _, port = node.endpoints["logjam_router"].rpartition(":")
    for rubbish in (os.urandom(100), b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x01\x7f"):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(rubbish)
    with Peer(zmq.DEALER, node.endpoints["logjam_router"]) as flooder:
        for index in range(2_000):
            flooder.send(*[b"x" * (index % 7)] * (index % 9 + 1))
        last = b"x" * 1_000_000
        flooder.send(b"", last, b"y" * 1_000_000, b"z", b"m")
        assert dealer.ask(b"", app_env.encode(), b"logs", b"{}", meta())[-1] == b"202 Accepted"
        # The next test counts what is wrong: the flood must be over.
        while (reply := flooder.receive()) != [last, b"400 Bad Request"]:
            assert reply is not None, "the last of the flood is not answered"


@pytest.mark.requirement("R2.1", "C43")
def test_messages_as_published_agents_write_them(dealer: Peer, stored: Payloads) -> None:
    """By their sources: the Go agent compresses with snappy, the Ruby agent's zlib is gzip; both pack 24 bytes."""
    now_ms = time.time_ns() // 1_000_000
    body = b'{"action":"Home#index","request_id":"0123456789abcdef0123456789abcdef"}'
    stream, topic = b"agents-preview", b"logs.agents.preview"
    go_meta = b"\xca\xbd" + bytes([2, 1]) + struct.pack(">I", 0) + struct.pack(">QQ", now_ms, 1)
    dealer.send(stream, topic, snappy.compress(body), go_meta)
    ruby_meta = struct.pack(">HBBI", 0xCABD, 1, 1, 0) + struct.pack(">QQ", now_ms, 2)
    reply = dealer.ask(b"", stream, topic, gzip.compress(body), ruby_meta)
    # What the Ruby agent checks: its app-env first, then a status that starts with 200 or 202.
    assert reply[0] == stream
    assert reply[1].startswith(b"202")
    assert stored("agents-preview", 2) == [body, body]


@pytest.mark.requirement("X2.7", "X2.11")
def test_dashboards_are_told_every_second_on_a_socket_of_their_own(node: NodeProcess, push: Peer, app_env: str) -> None:
    with Peer(zmq.SUB, node.endpoints["logjam_live"], subscribe=app_env.encode()) as dashboard:
        body = {"action": "Cart#show", "total_time": 30, "severity": 3, "request_id": "b" * 32, "code": 500}
        told: dict[str, int] = {}
        errors: set[str] = set()

        def is_told() -> bool:
            """A subscription takes a moment to arrive, and what was sent before is nobody's."""
            push.send(app_env.encode(), b"logs.x", zlib.compress(json.dumps(body).encode()), meta(compression=1))
            for key, text in iter(lambda: dashboard.receive(100), None):
                message = json.loads(text)
                if isinstance(message, list):
                    errors.add(message[0]["request_id"])
                else:
                    told[key.decode()] = told.get(key.decode(), 0) + message["count"]
            counted = {key for key, count in told.items() if count}
            return bool(errors) and {f"{app_env},all_pages", f"{app_env},cart"} == counted

        eventually(is_told, 60, "the live stream", lambda: f"{told} {errors}")
        assert errors == {"b" * 32}
