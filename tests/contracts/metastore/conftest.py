"""The backends under contract. A test asks for `store`, or for `stores` to open several on the same data."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.etcd import EtcdServers, etcd_servers
from tests.support.metastores import ManualClock, Stores

from headrace.control.embedded import EmbeddedMetastore
from headrace.control.etcd.server import EtcdServer
from headrace.control.etcd.settings import EtcdSettings
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


class Served:
    """A store in a file, served to a client in the same process; opened again, both begin anew."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self._path = path
        self._clock = clock
        self._store: EmbeddedMetastore | None = None
        self._server: EtcdServer | None = None

    async def open(self) -> EtcdMetastore:
        await self.close()
        self._store = await EmbeddedMetastore.open(self._path, clock=self._clock)
        self._server = EtcdServer(self._store)
        port = await self._server.start("127.0.0.1:0")
        return await EtcdMetastore.open(EtcdSettings(endpoints=(f"127.0.0.1:{port}",), prefix=""), progress_s=0.05)

    async def expire(self, _: Metastore) -> None:
        assert self._store is not None
        await self._store.expire_leases()

    async def close(self) -> None:
        if self._server is not None and self._store is not None:
            await self._server.stop()
            await self._store.close()


@pytest.fixture(params=["embedded", "served", "etcd"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Stores]:
    path = tmp_path / "metastore.sqlite"
    if request.param == "embedded":

        async def expire_embedded(store: Metastore) -> None:
            assert isinstance(store, EmbeddedMetastore)
            await store.expire_leases()

        backend = Stores(clock, lambda: EmbeddedMetastore.open(path, clock=clock), expire_embedded)
    elif request.param == "served":
        served = Served(path, clock)
        backend = Stores(clock, served.open, served.expire)
        backend.undo.push_async_callback(served.close)
    else:
        servers: EtcdServers = request.getfixturevalue("etcd")
        settings = EtcdSettings(endpoints=servers.endpoints, prefix=f"test-{next(_prefixes)}")

        async def expire_etcd(store: Metastore) -> None:
            raise AssertionError("etcd's leases run by its own clock: such a test is one of `BY_OUR_CLOCK`")

        backend = Stores(clock, lambda: EtcdMetastore.open(settings, progress_s=0.05), expire_etcd)
    async with backend.undo:
        yield backend


@pytest.fixture
async def store(stores: Stores) -> Metastore:
    return await stores.open()
