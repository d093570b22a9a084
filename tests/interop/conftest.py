"""One node for all tests of a module: they use topics of their own."""

from collections.abc import Iterator

import pytest
from tests.support.node import NodeProcess, running_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started
