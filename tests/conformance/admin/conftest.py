"""One node for every test of the administrative API, and a client that says where it comes from as a browser would not."""

from collections.abc import Iterator

import httpx
import pytest
from tests.support.node import NodeProcess, running_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"tier.upload.interval.ms": 200, "group.initial.rebalance.delay.ms": 0}
    with running_node(tmp_path_factory.mktemp("admin") / "data", settings) as started:
        yield started


@pytest.fixture
def api(node: NodeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]


@pytest.fixture
def topic(name: str, api: httpx.Client) -> str:
    """A topic of two partitions for this test alone."""
    answer = api.post("/topics", json={"name": name, "partitions": 2})
    assert answer.status_code == 200, answer.text
    return name
