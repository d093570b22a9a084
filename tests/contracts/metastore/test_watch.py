"""Watching: every change once, in order, from where one says."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.metastores import newest_revision, take

from headrace.control.metastore import Changes, Delete, KeyRange, Metastore, Put, WatchEvent, only, prefix
from headrace.errors import RevisionCompacted


async def watch_from_now(store: Metastore, keys: KeyRange) -> AsyncIterator[Changes]:
    return store.watch(keys, from_revision=await newest_revision(store) + 1)


async def test_changes_arrive_in_order_with_their_revision(store: Metastore) -> None:
    watch = await watch_from_now(store, prefix("/a/"))
    first = (await store.txn((), (Put("/a/2", b"x"), Put("/a/1", b"y"), Put("/b", b"")))).revision
    second = (await store.txn((), (Put("/a/1", b"z"),))).revision
    third = (await store.txn((), (Delete(prefix("/a/")),))).revision
    assert await take(watch, 5) == [
        WatchEvent("/a/2", b"x", first),
        WatchEvent("/a/1", b"y", first),
        WatchEvent("/a/1", b"z", second),
        WatchEvent("/a/1", None, third),
        WatchEvent("/a/2", None, third),
    ]


async def test_a_watch_begins_where_it_is_told_not_where_it_is_first_read(store: Metastore) -> None:
    await store.txn((), (Put("/a", b"before"),))
    watch = await watch_from_now(store, only("/a"))
    await store.txn((), (Put("/a", b"after"),))
    assert [event.value for event in await take(watch, 1)] == [b"after"]


async def test_a_revision_is_told_whole(store: Metastore) -> None:
    watch = await watch_from_now(store, prefix("/a/"))
    written = await store.txn((), [Put(f"/a/{index}", b"") for index in range(100)])
    changes = await anext(watch)
    while not changes.events:
        changes = await anext(watch)
    assert (changes.revision, len(changes.events)) == (written.revision, 100)


async def test_a_quiet_watcher_moves_on(store: Metastore) -> None:
    """Or the past that it would resume from is forgotten while it waits."""
    watch = await watch_from_now(store, prefix("/quiet/"))
    revision = (await store.txn((), (Put("/loud", b""),))).revision
    changes = await anext(watch)
    while changes.revision < revision:
        changes = await anext(watch)
    assert not changes.events


async def test_keys_that_nobody_asked_for_are_left_out(store: Metastore) -> None:
    watch = store.watch(prefix("/t/"), from_revision=await newest_revision(store) + 1, without="/segments/")
    await store.txn((), (Put("/t/a/segments/0", b""), Put("/t/a/config", b""), Put("/t/segments", b"")))
    assert [event.key for event in await take(watch, 2)] == ["/t/a/config", "/t/segments"]


async def test_a_watch_resumes_from_a_revision_of_the_past(store: Metastore) -> None:
    revisions = [(await store.txn((), (Put("/a", b"%d" % index),))).revision for index in range(5)]
    watch = store.watch(only("/a"), from_revision=revisions[2])
    assert [event.value for event in await take(watch, 3)] == [b"2", b"3", b"4"]


async def test_a_range_read_and_a_watch_after_it_miss_nothing(store: Metastore) -> None:
    async def write() -> None:
        for index in range(40):
            await store.txn((), (Put(f"/a/{index}", b""),))

    started = await watch_from_now(store, prefix("/a/"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        await take(started, 1)
        seen = await store.range(prefix("/a/"))
        watch = store.watch(prefix("/a/"), from_revision=seen.revision + 1)
        later = await take(watch, 40 - len(seen.items))
    assert {item.key for item in seen.items} | {event.key for event in later} == {f"/a/{i}" for i in range(40)}


async def test_several_watchers_each_get_everything(store: Metastore) -> None:
    watches = [await watch_from_now(store, prefix("/")) for _ in range(3)]
    readers = [asyncio.ensure_future(take(each, 4)) for each in watches]
    await asyncio.sleep(0)
    readers[0].cancel()
    for index in range(4):
        await store.txn((), (Put("/a", b"%d" % index),))
    for reader in readers[1:]:
        assert [event.value for event in await reader] == [b"0", b"1", b"2", b"3"]
    assert len(await take(watches[0], 4)) == 4


async def test_a_refused_transaction_shows_nothing(store: Metastore) -> None:
    watch = await watch_from_now(store, prefix("/"))
    await store.txn((), (Delete(prefix("/nothing")),))
    await store.txn((), (Put("/a", b""),))
    assert [event.key for event in await take(watch, 1)] == ["/a"]


async def test_a_past_that_is_not_kept_is_refused(store: Metastore) -> None:
    with pytest.raises(RevisionCompacted):
        await anext(store.watch(prefix("/"), from_revision=0))


async def test_a_closed_store_ends_its_watches(store: Metastore) -> None:
    watch = await watch_from_now(store, prefix("/"))
    await store.txn((), (Put("/a", b""),))
    assert [event.key for event in await take(watch, 1)] == ["/a"]
    waiting = asyncio.ensure_future(take(watch, 1))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(StopAsyncIteration):
        await take(watch, 1)
