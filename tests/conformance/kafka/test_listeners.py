"""Clients are told the address of the listener they asked, and an open node says that it is one."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

SETTINGS = {
    "listen.mlog": "0.0.0.0:0",
    "listener.mlog.open": "true",
    "listener.outside.door": "kafka",
    "listener.outside.listen": "127.0.0.1:0",
    "listener.outside.advertised": "log.example.com:9094",
    "listener.wide.door": "kafka",
    "listener.wide.listen": "0.0.0.0:0",
    "listener.wide.open": "true",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("listeners") / "data", SETTINGS) as running:
        yield running


def told(address: str) -> set[str]:
    with RawKafka(address) as client:
        metadata = client.call(MetadataRequest(topics=[]), 12, MetadataResponse)
        cluster = client.call(DescribeClusterRequest(), 1, DescribeClusterResponse)
    hosts = {f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    return hosts | {f"{broker.host}:{broker.port}" for broker in cluster.brokers}


def bound_port(node: NodeProcess, listener: str) -> str:
    """Where it listens, which is not what it tells."""
    events = [json.loads(line) for line in node.log_path.read_text().splitlines() if line.startswith("{")]
    (opened,) = [each for each in events if each.get("listener") == listener]
    return str(opened["address"]).rpartition(":")[2]


def test_each_listener_tells_its_own_address(node: NodeProcess) -> None:
    assert told(node.kafka) == {node.kafka}
    assert told(f"127.0.0.1:{bound_port(node, 'outside')}") == {"log.example.com:9094"}
    assert node.endpoints["outside"] == "log.example.com:9094"


def test_behind_a_wildcard_the_address_that_worked_is_told(node: NodeProcess) -> None:
    port = node.endpoints["wide"].rpartition(":")[2]
    for host in ("127.0.0.1", "127.0.0.2"):
        assert told(f"{host}:{port}") == {f"{host}:{port}"}


def test_an_open_node_says_so_wherever_one_looks(node: NodeProcess) -> None:
    opened = ["mlog at 0.0.0.0:0", "wide at 0.0.0.0:0"]
    assert "this node is open to anybody who reaches it" in node.log_path.read_text()
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/health") as answer:
        health = json.load(answer)
    assert health["open_listeners"] == opened
    (problem,) = health["problems"]
    assert problem.startswith("anybody who reaches this node may read, change and delete everything")
    assert "OPEN TO ANYBODY: mlog at 0.0.0.0:0, wide at 0.0.0.0:0" in described(node)
    assert json.loads(described(node, "--json"))["open_listeners"] == opened


def described(node: NodeProcess, *more: str) -> str:
    command = [sys.executable, "-m", "headrace", "cluster", "describe", "-b", node.kafka]
    return subprocess.run(
        [*command, "--admin", node.endpoints["admin"], *more], capture_output=True, text=True, check=True
    ).stdout
