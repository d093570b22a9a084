"""One node for every test that does not need one of its own, a connection and a topic for each test."""

from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


@pytest.fixture(scope="session")
def pure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that serves nothing in C, as on a machine without a compiler."""
    with running_node(tmp_path_factory.mktemp("pure") / "data", environment={"HEADRACE_PURE": "1"}) as started:
        yield started


@pytest.fixture
def client(node: NodeProcess) -> Iterator[RawKafka]:
    with RawKafka(node.kafka) as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]


@pytest.fixture
def topic(name: str, client: RawKafka) -> str:
    """A topic of one partition for this test alone."""
    client.create_topic(name)
    return name
