"""Quotas at a real node: whoever is over one is told and not read from, and nobody else notices."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import FETCH_VERSION, PRODUCE_VERSION, Closed, RawKafka, batch_of

from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.metadata_response import MetadataResponse
from headrace.wire.kafka.messages.produce_response import ProduceResponse

SETTINGS = {
    f"listener.{name}.{key}": value
    for name in ("alice", "bob")
    for key, value in (("door", "kafka"), ("listen", "127.0.0.1:0"), ("principal", f"User:{name}"))
}
LARGE = batch_of([bytes(100_000)])
SMALL = batch_of([b"small"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("quotas") / "data", SETTINGS) as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("orders")
        yield node


@pytest.fixture
def node(running: NodeProcess) -> Iterator[NodeProcess]:
    yield running
    for each in quota(running, "list"):
        names = [word for kind in ("user", "client", "ip") if each[kind] for word in (f"--{kind}", each[kind])]
        quota(running, "remove", *names)


def quota(node: NodeProcess, *arguments: str) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "headrace", "quota", *arguments, "--json", "--local", str(node.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else []


def produce(client: RawKafka, batch: bytearray) -> int:
    """The throttle time that a produce is told."""
    number = client.send_produce("orders", 0, batch)
    answer = client.read_response(ProduceResponse, PRODUCE_VERSION, number)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


def is_silent(client: RawKafka) -> bool:
    client.socket.settimeout(0.05)
    try:
        return not client.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(30)


def test_who_produces_too_much_waits_and_nobody_else_does(node: NodeProcess) -> None:
    with RawKafka(node.endpoints["alice"]) as alice, RawKafka(node.endpoints["bob"]) as bob:
        # Both are served in C by now; a quota that is set takes hold of connections that are open.
        assert produce(alice, SMALL) == produce(bob, SMALL) == 0
        quota(node, "set", "--user", "alice", "--produce", "1k")
        # What was sent is kept and answered at once: 100 kB at 1 kB/s, of which ten seconds are free.
        assert 80_000 < produce(alice, LARGE) < 100_000
        waiting = alice.send_produce("orders", 0, SMALL)
        for _ in range(100):
            assert produce(bob, SMALL) == 0
        assert produce(bob, LARGE) == 0
        assert is_silent(alice)
        # Another connection of the same user is told as well: the rate is the user's.
        with RawKafka(node.endpoints["alice"]) as second:
            assert produce(second, SMALL) > 80_000
        quota(node, "remove", "--user", "alice")
        answer = alice.read_response(ProduceResponse, PRODUCE_VERSION, waiting)
        assert (answer.throttle_time_ms, answer.responses[0].partition_responses[0].error_code) == (0, 0)
        assert produce(alice, LARGE) == 0


def test_who_reads_too_much_waits(node: NodeProcess) -> None:
    with RawKafka(node.endpoints["alice"]) as alice, RawKafka(node.endpoints["bob"]) as bob:
        produce(bob, LARGE)
        end = bob.fetch("orders", 0, 0).high_watermark
        quota(node, "set", "--user", "*", "--client", "raw", "--consume", "1k")
        number = alice.send_fetch("orders", 0, end - 1)
        answer = alice.read_response(FetchResponse, FETCH_VERSION, number)
        # One whole batch always comes, or a reader would never get past it.
        assert len(answer.responses[0].partitions[0].records or b"") > 100_000
        assert answer.throttle_time_ms > 80_000
        waiting = alice.send_request(ApiVersionsRequest(), 0)
        # A default holds for each user by himself.
        number = bob.send_fetch("orders", 0, end)
        assert bob.read_response(FetchResponse, FETCH_VERSION, number).throttle_time_ms == 0
        assert is_silent(alice)
        quota(node, "remove", "--user", "*", "--client", "raw")
        assert alice.read_response(ApiVersionsResponse, 0, waiting).error_code == 0


def test_who_keeps_the_node_busy_waits(node: NodeProcess) -> None:
    quota(node, "set", "--user", "alice", "--requests", "0.0001")
    with RawKafka(node.endpoints["alice"]) as alice, RawKafka(node.endpoints["bob"]) as bob:
        told = alice.call(MetadataRequest(topics=None), 12, MetadataResponse).throttle_time_ms
        # Never longer than a second, as in Kafka: requests differ, and one slow one must not be held against a client for minutes.
        assert 0 < told <= 1000
        assert bob.call(MetadataRequest(topics=None), 12, MetadataResponse).throttle_time_ms == 0


def test_an_address_that_connects_too_often_is_closed(node: NodeProcess) -> None:
    quota(node, "set", "--ip", "127.0.0.1", "--connections", "1")
    made = [RawKafka(node.endpoints["bob"]) for _ in range(20)]
    try:
        served = 0
        for client in made:
            try:
                client.api_versions()
                served += 1
            except Closed:
                assert client.is_closed_by_peer()
        # One a second, of which ten seconds are free.
        assert 10 <= served < 20
        # The owner of the data directory has no address.
        assert quota(node, "list")
    finally:
        for client in made:
            client.close()


def test_quotas_outlive_the_node(node: NodeProcess) -> None:
    quota(node, "set", "--user", "alice", "--client", "app", "--produce", "5MB", "--consume", "2MiB")
    quota(node, "set", "--user", "alice", "--client", "app", "--requests", "50")
    before = quota(node, "list")
    assert before == [
        {
            "user": "alice",
            "client": "app",
            "ip": None,
            "produce": 5e6,
            "consume": 2.0 * 2**20,
            "requests": 50.0,
            "connections": None,
        }
    ]
    node.kill()
    node.start()
    assert quota(node, "list") == before
