"""One node for all tests of a module, each with topics of its own.

A module that wants its node otherwise says so in `NODE_SETTINGS`.
"""

from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = getattr(request.module, "NODE_SETTINGS", {})
    with running_node(tmp_path_factory.mktemp("node") / "data", settings) as started:
        yield started


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic's name that nobody else uses."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    """A topic of four partitions for this test alone."""
    with RawKafka(node.kafka) as client:
        client.create_topic(name, 4)
    return name
