"""The backends under contract. A test asks for `store`, or for `stores` to open several on the same data."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.metastores import ManualClock, Stores

from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Metastore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Stores]:
    async def expire_embedded(store: Metastore) -> None:
        assert isinstance(store, EmbeddedMetastore)
        await store.expire_leases()

    backends = {
        "embedded": Stores(
            clock, lambda: EmbeddedMetastore.open(tmp_path / "metastore.sqlite", clock=clock), expire_embedded
        ),
    }
    backend = backends[request.param]
    async with backend.undo:
        yield backend


@pytest.fixture
async def store(stores: Stores) -> Metastore:
    return await stores.open()
