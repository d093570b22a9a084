"""The backends under contract. A test asks for `store`, or for `stores` to open several on the same data."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.etcd import EtcdServers, etcd_servers
from tests.support.metastores import ManualClock, Stores

from headrace.control.embedded import EmbeddedMetastore
from headrace.control.etcd.connection import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.metastore import Metastore

_prefixes = itertools.count()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServers]:
    with etcd_servers() as servers:
        yield servers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded", "etcd"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Stores]:
    if request.param == "embedded":

        async def expire_embedded(store: Metastore) -> None:
            assert isinstance(store, EmbeddedMetastore)
            await store.expire_leases()

        backend = Stores(
            clock, lambda: EmbeddedMetastore.open(tmp_path / "metastore.sqlite", clock=clock), expire_embedded
        )
    else:
        servers: EtcdServers = request.getfixturevalue("etcd")
        settings = EtcdSettings(endpoints=servers.endpoints, prefix=f"test-{next(_prefixes)}")

        async def expire_etcd(store: Metastore) -> None:
            pytest.skip("etcd's leases run by its own clock: see test_etcd.py")

        backend = Stores(clock, lambda: EtcdMetastore.open(settings, progress_s=0.05), expire_etcd)
    async with backend.undo:
        yield backend


@pytest.fixture
async def store(stores: Stores) -> Metastore:
    return await stores.open()
