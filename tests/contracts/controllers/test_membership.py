"""Brokers and controllers over real connections, on a SQLite file and on a real etcd."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.etcd import EtcdServers, etcd_servers

from headrace.cli.cluster_init import init
from headrace.clock import SystemClock
from headrace.config.load import load
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.controller.driver import Controller, Entered
from headrace.control.controller.machine import Machine, Timing
from headrace.control.controller.office import Office
from headrace.control.controller.probe import is_refused
from headrace.control.controller.service import MembershipService, Numbering
from headrace.control.credentials import server_credentials
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.etcd.server import EtcdServer
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.membership import Membership
from headrace.control.metastore import Metastore
from headrace.control.settings import ControlSettings
from headrace.errors import Conflict, Invalid, StaleEpoch, Unavailable
from headrace.tier.commits import Commits
from headrace.tier.plans import Author, Numbered, Placed
from headrace.tier.segments import SegmentTable
from headrace.tier.sequencer import Committed, Sequencer, decode_commit, encode_commit

PATIENCE_S = 60.0
SESSION_S = 2.0
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServers]:
    with etcd_servers() as servers:
        yield servers


class Site:
    """Controllers on one store, each on a port of its own."""

    def __init__(self, open_store: Callable[[], AsyncIterator[Metastore]]) -> None:
        self._open_store = open_store
        self._undo = AsyncExitStack()
        self._lives: list[AsyncExitStack] = []
        self.controllers: list[Controller] = []
        self.endpoints: tuple[str, ...] = ()
        self.store: Metastore

    async def start(self, count: int, *, settings: ControlSettings | None = None) -> None:
        self.store = await anext(aiter(self._open_store()))
        self._undo.push_async_callback(self.store.close)
        for number in range(count):
            await self._start_one(f"c{number}", settings)
        await until(lambda: any(each.office.is_held for each in self.controllers))

    async def _start_one(self, name: str, settings: ControlSettings | None) -> None:
        life = AsyncExitStack()
        office = Office(self.store, controller_id=name, endpoint="", clock=SystemClock())
        cluster = await Cluster.load(self.store, SystemClock())
        sequencer = Sequencer(self.store, office.guard, on_lost=office.lost)
        controller = Controller(
            cluster, Machine(Timing()), office, clock=SystemClock(), probe=is_refused, beside=[sequencer.run]
        )

        async def commit_object(commit: bytes) -> Numbering:
            done = await sequencer.commit(decode_commit(commit))
            return Numbering(done.number, done.revision)

        service = MembershipService(controller, commit_object=commit_object)
        server = EtcdServer(self.store, others=[service.handler()])
        credentials = None if settings is None else server_credentials(settings)
        port = await server.start("127.0.0.1:0", credentials)
        office.endpoint = f"127.0.0.1:{port}"
        life.push_async_callback(server.stop)
        running = asyncio.create_task(controller.run())
        life.callback(running.cancel)
        self._lives.append(life)
        self._undo.push_async_callback(life.aclose)
        self.controllers.append(controller)
        self.endpoints += (office.endpoint,)

    async def stop_active(self) -> None:
        """Without a word: its lease has to run out."""
        (index,) = [number for number, each in enumerate(self.controllers) if each.office.is_held]
        await self._lives[index].aclose()

    async def member(self, name: str, tls: Mapping[str, str] | None = None) -> Membership:
        settings = EtcdSettings(endpoints=self.endpoints, prefix="", **(tls or {}))
        member = Membership(settings, name, clock=SystemClock())
        self._undo.push_async_callback(member.close)
        return member

    async def join(self, name: str, on_fenced: Callable[[], None] = lambda: None) -> tuple[Membership, Entered]:
        member = await self.member(name)
        entered = await member.register(
            pb.BrokerRegistration(wal_path=name), patience_s=PATIENCE_S, on_fenced=on_fenced
        )
        await member.activate(pb.BrokerRegistration(advertised={"kafka": f"{name}:1"}), patience_s=PATIENCE_S)
        return member, entered

    async def state(self, name: str) -> int | None:
        item = await self.store.get(keys.broker(name))
        return None if item is None else values.decode(pb.BrokerRegistration, item.value).state

    async def client(self, entered: Entered) -> Cluster:
        """As the broker sees it: through the controllers."""
        store = await EtcdMetastore.open(EtcdSettings(endpoints=self.endpoints, prefix=""))
        self._undo.push_async_callback(store.close)
        cluster = await Cluster.load(store, SystemClock())
        cluster.enter(entered.fence)
        return cluster

    async def close(self) -> None:
        await self._undo.aclose()


@pytest.fixture(params=["sqlite", "etcd"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async def sqlite() -> AsyncIterator[Metastore]:
        yield await EmbeddedMetastore.open(tmp_path / "metastore.sqlite")

    async def etcd() -> AsyncIterator[Metastore]:
        servers: EtcdServers = request.getfixturevalue("etcd")
        prefix = f"controllers-{next(_prefixes)}"
        yield await EtcdMetastore.open(EtcdSettings(endpoints=servers.endpoints, prefix=prefix))

    site = Site(sqlite if request.param == "sqlite" else etcd)
    yield site
    await site.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_broker_joins_is_heard_and_leaves(site: Site) -> None:
    await site.start(3)
    member, entered = await site.join("b1")
    assert (entered.registered.numeric_id, entered.registered.broker_epoch) == (1, 1)
    assert await site.state("b1") == pb.ACTIVE
    await asyncio.sleep(SESSION_S * 1.2)
    assert await site.state("b1") == pb.ACTIVE, "heartbeats keep it alive past its session"
    await member.leave(is_gone=False, patience_s=PATIENCE_S)
    assert await site.state("b1") == pb.DRAINING
    await member.leave(is_gone=True, patience_s=PATIENCE_S)
    assert await site.state("b1") is None


async def test_a_broker_that_falls_silent_is_fenced_told_so_and_comes_back(site: Site) -> None:
    await site.start(1)
    fenced = asyncio.Event()
    member, entered = await site.join("b1", fenced.set)
    await site.join("b2")
    cluster = await site.client(entered)
    await cluster.create_topic("t", partitions=4, overrides={"durability": "object"})
    member._rest()
    async with asyncio.timeout(PATIENCE_S):
        while await site.state("b1") != pb.FENCED or any(
            each.leader != "b2" for each in (await Cluster.load(site.store, SystemClock())).topics.get("t").partitions
        ):
            await asyncio.sleep(0.05)
    with pytest.raises(StaleEpoch):
        await cluster.raise_ceilings({("t", 0): 10})
    # As after a pause: it goes on where it was, and hears it at its next heartbeat.
    member._beats = [asyncio.create_task(member._beat_always(0))]
    async with asyncio.timeout(PATIENCE_S):
        await fenced.wait()
    _, again = await site.join("b1")
    assert again.registered.broker_epoch > entered.registered.broker_epoch
    assert again.registered.numeric_id == entered.registered.numeric_id


async def test_another_controller_takes_over_and_brokers_find_it(site: Site) -> None:
    await site.start(3)
    member, entered = await site.join("b1")
    await site.stop_active()
    await until(lambda: sum(each.office.is_held for each in site.controllers) == 1)
    again = await member.register(pb.BrokerRegistration(wal_path="b1"), patience_s=PATIENCE_S, on_fenced=lambda: None)
    assert again.registered.broker_epoch > entered.registered.broker_epoch
    await member.activate(pb.BrokerRegistration(), patience_s=PATIENCE_S)


async def persistent(commit: Callable[[], Awaitable[int]], commits: Commits) -> int:
    """As the uploader does it: what is in doubt is read, and done again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await commits.settle()
                return await commit()
            except Unavailable:
                await asyncio.sleep(0.05)


@pytest.mark.requirement("R3.45")
async def test_commits_are_numbered_by_whichever_controller_is_active(site: Site) -> None:
    await site.start(3)
    member, entered = await site.join("b1")
    cluster = await site.client(entered)
    topic = await cluster.create_topic("t", partitions=1, overrides={"durability": "object"})
    author = Author("b1", entered.registered.numeric_id, entered.registered.broker_epoch)

    async def sequence(wanted: Numbered) -> Committed:
        return Committed(*await member.commit_object(encode_commit(wanted)))

    commits = Commits(cluster, author, SystemClock(), SegmentTable(), life="0" * 16, sequence=sequence)

    async def commit() -> int:
        target = await commits.new_object()
        base = commits.tail_start((topic.id, 0))
        claim = commits.claim(topic.id, 0, base_offset=base, end_offset=base + 1, leader_epoch=0)
        claims = await commits.prepare(target, [claim])
        placed = [
            Placed(claim=each, position=0, length=9, record_count=1, max_timestamp_ms=1, min_leader_epoch=0)
            for each in claims
        ]
        return await commits.commit(target, placed, 100, commits.new_manifest)

    assert [await commit() for _ in range(3)] == [1, 2, 3]
    item = await site.store.get(keys.segment("t", 0, 2))
    assert item is not None
    assert values.decode(pb.Segment, item.value).status == pb.IN_OBJECT_STORE
    await site.stop_active()
    assert await persistent(commit, commits) == 4
    again = await site.member("b1")
    await again.register(pb.BrokerRegistration(wal_path="b1"), patience_s=PATIENCE_S, on_fenced=lambda: None)
    with pytest.raises(StaleEpoch):
        await commit()


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_without_controllers_a_broker_says_where_it_looked(site: Site) -> None:
    site.endpoints = ("127.0.0.1:1",)
    member = await site.member("b1")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await member.register(pb.BrokerRegistration(), patience_s=0.5, on_fenced=lambda: None)


async def test_a_controller_that_is_not_there_is_called_one() -> None:
    settings = load(
        file=None,
        environ={},
        assignments=["controller.endpoints=127.0.0.1:1", "security.open=true", "object_store.type=local"],
        role="broker",
    )
    with pytest.raises(Unavailable) as refused:
        await EtcdMetastore.open(settings.control.as_controllers())
    assert str(refused.value) == "controller at 127.0.0.1:1: Connection refused"


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_what_a_controller_refuses_is_said_in_its_own_words(site: Site) -> None:
    await site.start(1)
    member = await site.member("b1")
    with pytest.raises(Conflict) as refused:
        await member.give_up_wal(patience_s=PATIENCE_S)
    assert str(refused.value) == (
        f"controller at {site.endpoints[0]}: no broker b1 is known, nor a partition in a WAL of it: "
        "`headrace cluster describe` lists brokers"
    )


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_a_broker_of_another_cluster_is_told_so(site: Site) -> None:
    await site.start(1)
    member = await site.member("b1")
    member.cluster_id = "another"
    with pytest.raises(Invalid, match="another"):
        await member.register(pb.BrokerRegistration(), patience_s=PATIENCE_S, on_fenced=lambda: None)
    assert await site.state("b1") is None


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_only_nodes_with_a_certificate_of_the_cluster_get_in(site: Site, tmp_path: Path) -> None:
    """The certificates that `headrace cluster init` writes, for a controller, a broker and a broker of another cluster."""
    node, stranger = prepared(tmp_path / "cluster"), prepared(tmp_path / "another")
    await site.start(1, settings=node)
    member = await site.member("b1", tls_of(node))
    await member.register(pb.BrokerRegistration(), patience_s=PATIENCE_S, on_fenced=lambda: None)
    forged = {**tls_of(stranger), "ca_file": tls_of(node)["ca_file"]}
    for tls in (forged, {"ca_file": tls_of(node)["ca_file"]}, {}):
        intruder = await site.member("b2", tls)
        with pytest.raises(Unavailable):
            await intruder.register(pb.BrokerRegistration(), patience_s=1.0, on_fenced=lambda: None)
    assert await site.state("b2") is None


def prepared(directory: Path) -> ControlSettings:
    """A node's settings as `headrace cluster init` writes them."""
    init(nodes="127.0.0.1", out=directory, install_dir=directory / "127.0.0.1")
    return load(file=directory / "127.0.0.1" / "controller.toml", environ={}, role="controller").control


def tls_of(settings: ControlSettings) -> dict[str, str]:
    known = settings.as_controllers()
    return {"ca_file": known.ca_file, "cert_file": known.cert_file, "key_file": known.key_file}
