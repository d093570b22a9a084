"""One node for all tests of this door; each test uses an application of its own."""

import itertools
from collections.abc import Callable, Iterator

import pytest
import zmq
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.zmq_agent import Peer

from headrace.clients import BlockingRustLogClient, ClientError, RetryPolicy

_numbers = itertools.count()
HEARTBEAT_MS = 200

Payloads = Callable[[str, int], list[bytes]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"logjam.heartbeat.interval.ms": HEARTBEAT_MS, "logjam.device.number": 4711}
    with running_node(tmp_path_factory.mktemp("logjam") / "data", settings) as running:
        yield running


@pytest.fixture
def dealer(node: NodeProcess) -> Iterator[Peer]:
    with Peer(zmq.DEALER, node.endpoints["logjam_router"]) as peer:
        yield peer


@pytest.fixture
def push(node: NodeProcess) -> Iterator[Peer]:
    with Peer(zmq.PUSH, node.endpoints["logjam_pull"]) as peer:
        yield peer


@pytest.fixture
def log(node: NodeProcess) -> Iterator[BlockingRustLogClient]:
    """What was stored, read through another door."""
    with BlockingRustLogClient(node.endpoints["rustlog"], retry=RetryPolicy(attempts_max=1)) as client:
        yield client


@pytest.fixture
def stored(log: BlockingRustLogClient) -> Payloads:
    """Waits until the log of an app-env has as many records; gives their values."""

    def read(app_env: str, count: int) -> list[bytes]:
        found: list[bytes] = []

        def is_there() -> bool:
            try:
                found[:] = [record.payload for record in log.fetch(f"logjam-{app_env}", offset=0).records]
            except ClientError:
                return count == 0
            return len(found) >= count

        eventually(is_there, 60, f"{count} records of {app_env}", lambda: repr(found[-3:]))
        return found

    return read


@pytest.fixture
def app_env() -> str:
    return f"app{next(_numbers)}-production"
