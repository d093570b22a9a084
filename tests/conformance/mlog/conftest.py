"""One node for all tests of this door; each test makes topics of its own."""

import itertools
from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node

from headrace.clients import BlockingMlogClient, RetryPolicy

_numbers = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # A disk may stand still for longer than anybody would wait for it in earnest.
    with running_node(tmp_path_factory.mktemp("mlog") / "data", {"mlog.ack.timeout.ms": 60_000}) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[BlockingMlogClient]:
    with BlockingMlogClient([node.endpoints["mlog"]], retry=RetryPolicy(attempts_max=1)) as connected:
        yield connected


@pytest.fixture
def topic(client: BlockingMlogClient) -> str:
    name = f"topic-{next(_numbers)}"
    client.create_topic(name)
    return name
