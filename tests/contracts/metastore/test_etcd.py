"""What only a real etcd shows: leases by its clock, members that die, a past that is compacted, lost replies."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.etcd import EtcdServers, etcd_servers
from tests.support.metastores import ManualClock, newest_revision, take

from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.metastore import Changes, Put, prefix, read_all, unchanged
from headrace.errors import LeaseNotFound, OutcomeUnknown, RevisionCompacted, Unavailable

_prefixes = itertools.count()


@pytest.fixture(scope="module")
def servers() -> Iterator[EtcdServers]:
    with etcd_servers(3) as servers:
        yield servers


@pytest.fixture
async def store(servers: EtcdServers) -> AsyncIterator[EtcdMetastore]:
    store = await EtcdMetastore.open(settings_for(servers), call_s=3.0, progress_s=0.1)
    yield store
    await store.close()


def settings_for(servers: EtcdServers) -> EtcdSettings:
    return EtcdSettings(endpoints=servers.endpoints, prefix=f"real-{next(_prefixes)}")


async def test_a_lease_is_granted_at_least_its_time_and_takes_its_keys_along(store: EtcdMetastore) -> None:
    lease = await store.grant_lease(1000)
    assert lease.ttl_ms >= 1000
    await store.txn((), (Put("/a", b"", lease.id), Put("/b", b"")))
    began = time.monotonic()
    for _ in range(4):
        await asyncio.sleep(lease.ttl_ms / 1000 / 2)
        assert await store.keep_alive(lease.id) == lease.ttl_ms
    assert await store.get("/a") is not None, f"kept alive for {time.monotonic() - began} s"
    watch = store.watch(prefix("/"), from_revision=await newest_revision(store) + 1)
    async with asyncio.timeout(lease.ttl_ms / 1000 + 10):
        assert [(event.key, event.value) for event in await take(watch, 1)] == [("/a", None)]
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(lease.id)


async def test_a_past_that_was_compacted_is_refused_to_watchers_and_pages(store: EtcdMetastore) -> None:
    first = (await store.txn((), [Put(f"/a/{index}", b"") for index in range(5)])).revision
    pages = store.pages(prefix("/a/"), limit=2)
    await anext(pages)
    last = (await store.txn((), (Put("/a/9", b""),))).revision
    await store.compact(last)
    with pytest.raises(RevisionCompacted):
        await anext(pages)
    with pytest.raises(RevisionCompacted):
        await take(store.watch(prefix("/"), from_revision=first), 1)
    assert len((await read_all(store, prefix("/a/"))).items) == 6


async def test_a_large_range_comes_in_pages(store: EtcdMetastore) -> None:
    for start in range(0, 2000, 100):
        await store.txn((), [Put(f"/a/{index:04}", bytes(5_000)) for index in range(start, start + 100)])
    found = await read_all(store, prefix("/a/"))
    assert [item.key for item in found.items] == [f"/a/{index:04}" for index in range(2000)]


async def test_nobody_answers_is_said_in_time() -> None:
    with pytest.raises(Unavailable):
        await EtcdMetastore.open(EtcdSettings(endpoints=("127.0.0.1:1", "127.0.0.1:2")), call_s=1.0)


@pytest.mark.slow
async def test_members_die_and_nothing_acknowledged_is_lost_or_done_twice(servers: EtcdServers) -> None:
    """A counter that only ever grows by one, in transactions that compare; a third member is killed every second."""
    store = await EtcdMetastore.open(settings_for(servers), call_s=2.0, progress_s=0.2)
    start = await newest_revision(store) + 1
    seen: list[int] = []
    acknowledged = doubtful = 0
    is_over = False

    async def count_up() -> None:
        nonlocal acknowledged, doubtful
        while not is_over:
            try:
                item = await store.get("/count")
                value = 1 if item is None else int(item.value) + 1
                compare = unchanged("/count", 0 if item is None else item.mod_revision)
                if (await store.txn((compare,), (Put("/count", b"%d" % value),))).is_success:
                    acknowledged += 1
            except OutcomeUnknown:
                doubtful += 1
            except Unavailable:
                await asyncio.sleep(0.05)

    async def follow(watch: AsyncIterator[Changes]) -> None:
        async for changes in watch:
            seen.extend(int(event.value or b"") for event in changes.events)

    chance = random.Random(1)
    async with asyncio.TaskGroup() as tasks:
        follower = tasks.create_task(follow(store.watch(prefix("/"), from_revision=start)))
        counters = [tasks.create_task(count_up()) for _ in range(3)]
        for _ in range(4):
            victim = chance.choice(servers.members)
            await asyncio.sleep(1)
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(1.5)
            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(servers.await_healthy)
        is_over = True
        await asyncio.gather(*counters)
        final = await store.get("/count")
        assert final is not None
        async with asyncio.timeout(30):
            while not seen or seen[-1] < int(final.value):
                await asyncio.sleep(0.05)
        follower.cancel()
    await store.close()
    assert seen == list(range(1, int(final.value) + 1)), "a watcher sees every value once, in order"
    assert acknowledged <= int(final.value) <= acknowledged + doubtful
    assert acknowledged > 100


async def test_brokers_share_their_topics_through_it(servers: EtcdServers) -> None:
    settings = settings_for(servers)
    stores = [await EtcdMetastore.open(settings, progress_s=0.1) for _ in range(2)]
    one, other = [await Cluster.load(store, ManualClock()) for store in stores]
    numbers = [
        await each.register(f"b{index}", pb.BrokerRegistration(host="h")) for index, each in enumerate((one, other))
    ]
    assert len({each.numeric_id for each in numbers}) == 2
    assert one.cluster_id == other.cluster_id
    async with asyncio.TaskGroup() as tasks:
        follower = tasks.create_task(other.follow())
        await one.create_topic("t", partitions=300, overrides={})
        await one.raise_leader_epochs()
        await one.create_topic("gone", partitions=1, overrides={})
        await one.delete_topic("gone")
        # Changes are heard in order: whoever knows of this one has heard of all before it.
        await one.create_topic("last", partitions=1, overrides={})
        async with asyncio.timeout(60):
            while other.topics.find("last") is None:
                await asyncio.sleep(0.02)
        follower.cancel()
    seen = other.topics.find("t")
    assert seen is not None
    assert seen.partitions[299].leader_epoch == 1
    assert other.topics.find("gone") is None
    assert len(seen.partitions) == 300
    for store in stores:
        await store.close()
