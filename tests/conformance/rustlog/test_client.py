"""The shipped RustLog client: what it raises, how it reconnects, waits, and gives up for a while."""

import asyncio
import json
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.metastores import ManualClock
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.ports import kept_port

from headrace.clients import BlockingRustLogClient, CircuitOpen, ClientError, RetryPolicy, RustLogClient, ServerError
from headrace.wire.rustlog.codes import ConnectionState

QUICK = RetryPolicy(attempts_max=4, backoff_first_ms=1, backoff_max_ms=4, timeout_ms=60_000)

Answerer = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[dict[str, Any] | None]]


@asynccontextmanager
async def scripted_server(answer: Answerer) -> AsyncIterator[str]:
    """A server that answers as it is told; None hangs up."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                reply = await answer(json.loads(await reader.readexactly(size)), writer)
                if reply is None:
                    break
                payload = json.dumps(reply).encode()
                writer.write(struct.pack(">I", len(payload)) + payload)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def error(code: int) -> dict[str, Any]:
    return {"type": "Error", "code": code, "message": f"it is {code}", "details": None}


@pytest.mark.requirement("R0.84")
async def test_4xx_and_5xx_raise_different_errors() -> None:
    asked = []

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        asked.append(request)
        return error(404 if request["topic"] == "client" else 503)

    async with scripted_server(answer) as address, RustLogClient(address, retry=QUICK) as client:
        with pytest.raises(ClientError, match="it is 404") as client_error:
            await client.describe_topic("client")
        assert client_error.value.code == 404
        assert len(asked) == 1
        with pytest.raises(ServerError, match="it is 503"):
            await client.describe_topic("server")
        assert len(asked) == 1 + QUICK.attempts_max


@pytest.mark.requirement("R0.97", "R0.84")
async def test_a_5xx_is_tried_again_until_it_passes() -> None:
    answers = iter([error(503), error(500), {"type": "Pong"}])

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        return next(answers)

    async with scripted_server(answer) as address, RustLogClient(address, retry=QUICK) as client:
        await client.ping()


@pytest.mark.requirement("R0.97", "R0.108")
async def test_a_dropped_connection_is_made_again() -> None:
    drops = 2

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        nonlocal drops
        drops -= 1
        return {"type": "Pong"} if drops < 0 else None

    async with scripted_server(answer) as address, RustLogClient(address, retry=QUICK) as client:
        await client.ping()
        await client.ping()


@pytest.mark.requirement("R0.97")
async def test_a_breaker_opens_after_repeated_failures_and_closes_again() -> None:
    policy = RetryPolicy(attempts_max=1, backoff_first_ms=1, timeout_ms=60_000, failures_to_open=3, open_ms=50)
    clock = ManualClock()
    is_well = False
    asked = 0

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "Pong"} if is_well else error(503)

    async with scripted_server(answer) as address, RustLogClient(address, retry=policy, clock=clock) as client:
        for _ in range(3):
            with pytest.raises(ServerError):
                await client.ping()
        with pytest.raises(CircuitOpen):
            await client.ping()
        assert asked == 3
        is_well = True
        clock.advance(49)
        with pytest.raises(CircuitOpen):
            await client.ping()
        clock.advance(1)
        await client.ping()
        await client.ping()


@pytest.mark.requirement("R0.86", "R0.87")
async def test_the_states_of_a_client() -> None:
    release = asyncio.Event()

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        await release.wait()
        return {"type": "Pong"}

    async with scripted_server(answer) as address:
        client = RustLogClient(address, retry=QUICK)
        states = [client.state]
        seen: list[ConnectionState] = []
        pinging = asyncio.ensure_future(client.ping())
        while ConnectionState.REQUEST_ACTIVE not in seen:
            await asyncio.sleep(0)
            seen.append(client.state)
        assert ConnectionState.TCP_CONNECTING in seen
        release.set()
        await pinging
        states.append(client.state)
        await client.close()
        states.append(client.state)
        assert states == [ConnectionState.CLOSED, ConnectionState.CONNECTED, ConnectionState.CLOSED]


async def test_calls_may_run_concurrently_and_get_their_own_answers() -> None:
    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        return {"type": "DescribeTopicResponse", "topic": request["topic"], "partitions": []}

    async with scripted_server(answer) as address, RustLogClient(address, retry=QUICK) as client:
        answers = await asyncio.gather(*(client.describe_topic(f"t{n}") for n in range(200)))
        assert [each.topic for each in answers] == [f"t{n}" for n in range(200)]


@pytest.mark.requirement("R0.97")
async def test_an_answer_in_pieces_is_read_whole() -> None:
    """The document's sample client calls recv once and would fail here."""

    async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        for byte in b'\x00\x00\x00\x0f{"type":"Pong"}':
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        return None

    async with scripted_server(answer) as address, RustLogClient(address, retry=QUICK) as client:
        await client.ping()


@pytest.mark.requirement("R0.97", "R0.108")
def test_the_client_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    patient = RetryPolicy(attempts_max=12, backoff_first_ms=50, backoff_max_ms=1_000, failures_to_open=100)
    with (
        kept_port() as port,
        running_node(tmp_path / "data", {"listen.rustlog": f"127.0.0.1:{port}"}) as node,
        BlockingRustLogClient(f"127.0.0.1:{port}", retry=patient) as client,
    ):
        client.create_topic("t")
        client.produce("t", [b"before"])
        node.kill()
        node.start()
        client.produce("t", [b"after"])
        payloads = [record.payload for record in client.fetch("t", offset=0).records]
        assert payloads == [b"before", b"after"]


def test_the_synchronous_face(node: NodeProcess) -> None:
    with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
        client.ping()
        with pytest.raises(ClientError):
            client.describe_topic("nonexistent")


@pytest.mark.requirement("X0.1", "R0.53")
def test_a_killed_broker_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """kill -9 in the middle of a stream of produces: every acknowledged record is there, once, at its offset."""
    with running_node(tmp_path / "data") as node:
        acknowledged: dict[int, bytes] = {}
        with BlockingRustLogClient(node.endpoints["rustlog"], retry=RetryPolicy(attempts_max=1)) as client:
            client.create_topic("t")

            def produce() -> None:
                number = 0
                try:
                    while True:
                        values = [b"%d-%d" % (number, index) for index in range(5)]
                        base = client.produce("t", values).base_offset
                        acknowledged.update((base + index, value) for index, value in enumerate(values))
                        number += 1
                except (OSError, EOFError):
                    return

            producer = threading.Thread(target=produce)
            producer.start()
            eventually(lambda: len(acknowledged) > 500, 120, "some acknowledged records")
            node.kill()
            producer.join()
        node.start()
        with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
            found: dict[int, bytes] = {}
            offset = 0
            while records := client.fetch("t", offset=offset).records:
                found.update((record.offset, record.payload) for record in records)
                offset = records[-1].offset + 1
            assert acknowledged.items() <= found.items()
            assert sorted(found) == list(range(len(found)))
            assert client.describe_partition("t", 0).high_watermark == len(found)
            assert client.produce("t", [b"next"]).base_offset == len(found)
