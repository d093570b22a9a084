"""Keys that live as long as somebody vouches for them."""

import asyncio

import pytest
from tests.support.metastores import ManualClock, Stores, newest_revision, take

from headrace.control.metastore import LeaseId, Metastore, Put, prefix
from headrace.errors import Invalid, LeaseNotFound

BY_OUR_CLOCK = pytest.mark.parametrize("stores", ["embedded", "served"], indirect=True)
"""For tests that move the clock. An etcd has its own: `test_etcd.py` waits for it."""


@BY_OUR_CLOCK
async def test_a_lease_takes_its_keys_along(store: Metastore, stores: Stores, clock: ManualClock) -> None:
    lease = (await store.grant_lease(1000)).id
    await store.txn((), (Put("/a", b"", lease), Put("/b", b"", lease), Put("/c", b"")))
    revision = (await store.range(prefix("/"))).revision
    clock.advance(999)
    await stores.expire(store)
    assert len((await store.range(prefix("/"))).items) == 3
    clock.advance(1)
    await stores.expire(store)
    left = await store.range(prefix("/"))
    assert ([item.key for item in left.items], left.revision) == (["/c"], revision + 1)


@BY_OUR_CLOCK
async def test_keeping_alive_starts_the_time_anew(store: Metastore, stores: Stores, clock: ManualClock) -> None:
    lease = (await store.grant_lease(1000)).id
    await store.txn((), (Put("/a", b"", lease),))
    for _ in range(3):
        clock.advance(900)
        await store.keep_alive(lease)
        await stores.expire(store)
    assert await store.get("/a") is not None
    clock.advance(1000)
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(lease)


async def test_revoking_deletes_at_once(store: Metastore) -> None:
    lease = (await store.grant_lease(1000)).id
    await store.txn((), (Put("/a", b"", lease),))
    await store.revoke_lease(lease)
    assert await store.get("/a") is None
    with pytest.raises(LeaseNotFound):
        await store.revoke_lease(lease)
    with pytest.raises(LeaseNotFound):
        await store.keep_alive(lease)


async def test_a_put_under_an_unknown_lease_writes_nothing(store: Metastore) -> None:
    with pytest.raises(LeaseNotFound):
        await store.txn((), (Put("/a", b""), Put("/b", b"", LeaseId(77))))
    assert await store.get("/a") is None


async def test_a_key_put_again_leaves_its_old_lease(store: Metastore) -> None:
    first, second = await asyncio.gather(store.grant_lease(1000), store.grant_lease(1000))
    assert first.id != second.id
    await store.txn((), (Put("/a", b"", first.id), Put("/b", b"", first.id)))
    await store.txn((), (Put("/a", b""), Put("/b", b"", second.id)))
    await store.revoke_lease(first.id)
    assert [item.key for item in (await store.range(prefix("/"))).items] == ["/a", "/b"]
    await store.revoke_lease(second.id)
    assert [item.key for item in (await store.range(prefix("/"))).items] == ["/a"]


@BY_OUR_CLOCK
async def test_a_watcher_sees_a_lease_run_out(store: Metastore, stores: Stores, clock: ManualClock) -> None:
    lease = await store.grant_lease(10)
    await store.txn((), (Put("/a", b"", lease.id),))
    watch = store.watch(prefix("/"), from_revision=await newest_revision(store) + 1)
    clock.advance(lease.ttl_ms)
    await stores.expire(store)
    assert [(event.key, event.value) for event in await take(watch, 1)] == [("/a", None)]


@BY_OUR_CLOCK
async def test_leases_outlive_a_restart_with_their_whole_time(stores: Stores, clock: ManualClock) -> None:
    store = await stores.open()
    lease = (await store.grant_lease(1000)).id
    await store.txn((), (Put("/a", b"", lease),))
    clock.advance(900)
    await store.close()
    clock.advance(5000)
    store = await stores.open()
    clock.advance(999)
    await stores.expire(store)
    assert await store.get("/a") is not None
    clock.advance(1)
    await stores.expire(store)
    assert await store.get("/a") is None
    assert (await store.grant_lease(1000)).id != lease


@pytest.mark.parametrize("ttl_ms", [0, -1, 10**12])
async def test_an_absurd_time_to_live_is_refused(store: Metastore, ttl_ms: int) -> None:
    with pytest.raises(Invalid):
        await store.grant_lease(ttl_ms)
