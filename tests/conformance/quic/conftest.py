from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka

from headrace.clients.quic import QuicClient


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("quic") / "data") as started:
        yield started


@pytest.fixture
def quic(node: NodeProcess) -> str:
    return node.endpoints["quic"]


@pytest.fixture
async def client(quic: str) -> AsyncIterator[QuicClient]:
    async with QuicClient(quic) as made:
        yield made


@pytest.fixture
def topic(request: pytest.FixtureRequest, node: NodeProcess) -> str:
    """Of one partition, for this test alone."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    with RawKafka(node.kafka) as kafka:
        kafka.create_topic(name)
    return name
