"""Kafka's frames on streams: asked by aioquic, which we did not write, and by our own client where aioquic cannot say it."""

import asyncio
import socket
import urllib.request

import pytest
from aioquic.tls import SessionTicket
from tests.support.node import NodeProcess
from tests.support.quic import HELLO, HELLO_VERSION, Frames, decoded, foreign_connection, read_frame
from tests.support.raw_kafka import FETCH_VERSION, PRODUCE_VERSION, RawKafka, batch_of

from headrace.clients.connection import CannotConnect
from headrace.clients.quic import MIGRATIONS_MAX, QuicClient, Trust
from headrace.clients.quic_proxy import QuicProxy
from headrace.errors import Invalid, Unavailable
from headrace.quic.certificates import CERTIFICATE_NAME, fingerprint_of
from headrace.records.record import read_records
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import ProduceResponse


def produce_request(topic: str, *values: bytes) -> ProduceRequest:
    data = PartitionProduceData(0, batch_of(list(values)))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(topic, partition_data=[data])])


def fetch_request(topic: str, *, max_bytes: int = 1 << 20) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=1000, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic, partitions=[part])]
    )


def metric(node: NodeProcess, name: str) -> float:
    text = urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics", timeout=10).read().decode()
    (line,) = (line for line in text.splitlines() if line.startswith(f"headrace_quic_{name} "))
    return float(line.split()[1])


@pytest.mark.requirement("R3.62")
async def test_a_foreign_client_speaks_kafka_on_streams(quic: str, topic: str, node: NodeProcess) -> None:
    async with foreign_connection(quic) as connection:
        reader, writer = await connection.create_stream()
        writer.write(encode_request(produce_request(topic, b"by quic"), PRODUCE_VERSION, 1, "tests"))
        taken = decoded(await read_frame(reader), PRODUCE_VERSION, ProduceResponse)
        assert taken.responses[0].partition_responses[0].error_code == 0
        reader, writer = await connection.create_stream()
        writer.write(encode_request(fetch_request(topic), FETCH_VERSION, 2, "tests"))
        found = decoded(await read_frame(reader), FETCH_VERSION, FetchResponse)
        records = found.responses[0].partitions[0].records
        assert records is not None
        assert [each.value for each in read_records(records)] == [b"by quic"]
    with RawKafka(node.kafka) as kafka:
        same = kafka.fetch(topic, 0, 0)
    assert [each.value for each in read_records(same.records or b"")] == [b"by quic"], "the same log, over TCP"


async def test_clients_are_told_the_address_of_the_quic_door(quic: str, client: QuicClient) -> None:
    frames = Frames()
    await client.open_stream(frames)
    told = await frames.call(MetadataRequest(topics=None), 9, MetadataResponse)
    assert [f"{each.host}:{each.port}" for each in told.brokers] == [quic]


@pytest.mark.requirement("R3.63")
async def test_streams_do_not_wait_for_each_other(client: QuicClient, topic: str) -> None:
    """One stream asks for megabytes and reads none of them; another goes on as if nothing were."""
    writer, slow, quick = Frames(), Frames(), Frames()
    for frames in (writer, slow, quick):
        await client.open_stream(frames)
    for _ in range(20):
        await writer.call(produce_request(topic, b"x" * 500_000), PRODUCE_VERSION, ProduceResponse)
    assert slow.stream is not None
    slow.stream.pause_reading()
    for _ in range(4):
        slow.send(fetch_request(topic, max_bytes=8 << 20), FETCH_VERSION)
    for _ in range(20):
        await quick.hello()
    slow.stream.resume_reading()
    for _ in range(4):
        found = await slow.answer(FETCH_VERSION, FetchResponse)
        assert found.responses[0].partitions[0].records


@pytest.mark.requirement("R3.63")
async def test_a_client_that_returns_is_answered_before_its_handshake_is_complete(quic: str, node: NodeProcess) -> None:
    tickets: list[SessionTicket] = []
    async with foreign_connection(quic, tickets=tickets) as connection:
        reader, writer = await connection.create_stream()
        writer.write(encode_request(HELLO, HELLO_VERSION, 1, "tests"))
        await read_frame(reader)
    before = metric(node, "early_total")
    async with foreign_connection(quic, ticket=tickets[0], is_patient=False) as connection:
        reader, writer = await connection.create_stream()
        writer.write(encode_request(HELLO, HELLO_VERSION, 1, "tests"))
        connection.transmit()
        assert decoded(await read_frame(reader), HELLO_VERSION, ApiVersionsResponse).error_code == 0
        assert connection._quic.tls.early_data_accepted
    assert metric(node, "early_total") == before + 1
    async with foreign_connection(quic, ticket=tickets[0], is_patient=False) as connection:
        reader, writer = await connection.create_stream()
        writer.write(encode_request(HELLO, HELLO_VERSION, 1, "tests"))
        connection.transmit()
        await read_frame(reader)
        assert not connection._quic.tls.early_data_accepted, "a ticket counts once"
    assert metric(node, "early_total") == before + 1


async def test_a_change_waits_for_the_handshake_and_is_done_once(client: QuicClient, topic: str) -> None:
    first = Frames()
    await client.open_stream(first)
    await first.hello()
    assert client.node is not None
    client.node.close()
    early = Frames()
    await client.open_stream(early)
    assert client.node is not None
    assert not client.node.is_connected, "asked before the handshake"
    early.send(produce_request(topic, b"late"), PRODUCE_VERSION)
    taken = await early.answer(PRODUCE_VERSION, ProduceResponse)
    assert taken.responses[0].partition_responses[0].base_offset == 0
    assert client.node.is_early_accepted
    found = await early.call(fetch_request(topic), FETCH_VERSION, FetchResponse)
    records = found.responses[0].partitions[0].records
    assert records is not None
    assert [each.value for each in read_records(records)] == [b"late"]


@pytest.mark.requirement("R3.63")
async def test_a_connection_goes_on_from_another_port(client: QuicClient, node: NodeProcess, topic: str) -> None:
    frames = Frames()
    await client.open_stream(frames)
    await frames.hello()
    before = metric(node, "migrations_total")
    assert client.node is not None
    for number in range(MIGRATIONS_MAX):
        client.node.migrate()
        taken = await frames.call(produce_request(topic, b"moved"), PRODUCE_VERSION, ProduceResponse)
        assert taken.responses[0].partition_responses[0].base_offset == number
    assert client.connections_total == 1
    assert metric(node, "migrations_total") >= before + MIGRATIONS_MAX


async def test_who_moves_too_often_goes_on_with_a_new_connection(client: QuicClient) -> None:
    frames = Frames()
    await client.open_stream(frames)
    await frames.hello()
    assert client.node is not None
    for _ in range(MIGRATIONS_MAX + 1):
        client.node.migrate()
    assert await asyncio.wait_for(frames.received.get(), 10) is None, "told at once, and not by a timeout"
    again = Frames()
    await client.open_stream(again)
    await again.hello()
    assert client.connections_total == 2


async def test_streams_come_and_go_on_one_connection(client: QuicClient) -> None:
    for _ in range(250):
        frames = Frames()
        stream = await client.open_stream(frames)
        await frames.hello()
        stream.close()
    assert client.connections_total == 1


async def test_what_is_no_kafka_ends_its_stream_and_no_other(client: QuicClient) -> None:
    good, bad = Frames(), Frames()
    await client.open_stream(good)
    stream = await client.open_stream(bad)
    stream.write(b"\x7f\xff\xff\xff" + b"junk" * 100)
    assert await asyncio.wait_for(bad.received.get(), 10) is None
    await good.hello()


async def test_a_node_is_known_by_its_fingerprint(quic: str, node: NodeProcess) -> None:
    path = node.data_dir / CERTIFICATE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert (node.data_dir / "quic.key").stat().st_mode & 0o777 == 0o600
    shown = fingerprint_of(path)
    assert shown in node.log_text()
    async with QuicClient(quic, trust=Trust(fingerprint=shown)) as client:
        assert (await client.connect()).show_fingerprint() == shown
    wrong = ":".join(["00"] * 32)
    async with QuicClient(quic, trust=Trust(fingerprint=wrong)) as client:
        with pytest.raises(CannotConnect, match=r"^no connection with the node at .* Fingerprints did not match"):
            await client.connect()
    async with QuicClient(quic, trust=Trust(fingerprint="AA:BB")) as client:
        with pytest.raises(Invalid, match=r"'AA:BB': expected the 64 hexadecimal digits"):
            await client.connect()


async def test_a_proxy_whose_port_is_taken_says_so_once_and_how_to_take_another(quic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable) as refused:
            async with QuicProxy([quic], listen=f"127.0.0.1:{port}"):
                pass
    assert str(refused.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use; --listen names another"


async def test_metadata_that_would_create_a_topic_waits_and_is_answered(client: QuicClient, node: NodeProcess) -> None:
    first = Frames()
    await client.open_stream(first)
    await first.hello()
    assert client.node is not None
    client.node.close()
    before = metric(node, "early_total")
    frames = Frames()
    await client.open_stream(frames)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="made-by-asking")], allow_auto_topic_creation=True)
    told = await frames.call(asked, 9, MetadataResponse)
    assert told.topics[0].name == "made-by-asking"
    assert metric(node, "early_total") == before
