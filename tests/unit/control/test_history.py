"""The recent past: bounded, whole revisions at a time, and honest to those who fall behind."""

import asyncio

import pytest

from headrace.control.history import History
from headrace.control.metastore import Changes, WatchEvent, prefix
from headrace.errors import RevisionCompacted, StorageFailed


def revision_of(revision: int, count: int = 2) -> list[WatchEvent]:
    return [WatchEvent(f"/a/{index}", b"", revision) for index in range(count)]


async def test_what_is_kept_is_bounded_and_whole() -> None:
    history = History(1, events_max=10)
    for revision in range(2, 100):
        history.add(revision_of(revision, count=3))
        kept = await history.next_events(history.compacted + 1)
        assert len(kept) <= 20
        assert len(kept) == 3 * (revision - history.compacted)
    assert history.compacted > 80


async def test_a_watcher_that_falls_behind_is_told() -> None:
    history = History(1, events_max=4)
    watch = history.follow(prefix("/"), 2)
    history.add(revision_of(2))
    assert (await anext(watch)).revision == 2
    for revision in range(3, 20):
        history.add(revision_of(revision))
    with pytest.raises(RevisionCompacted):
        await anext(watch)
    with pytest.raises(RevisionCompacted):
        history.follow(prefix("/"), history.compacted)


async def test_events_of_others_keys_only_move_a_watcher_on() -> None:
    history = History(1)
    watch = history.follow(prefix("/b"), 2)
    waiting = asyncio.ensure_future(anext(watch))
    history.add(revision_of(2))
    assert await waiting == Changes(2, ())
    history.add([WatchEvent("/b", b"", 3)])
    assert await anext(watch) == Changes(3, (WatchEvent("/b", b"", 3),))


async def test_a_failure_follows_the_last_event() -> None:
    history = History(1)
    watch = history.follow(prefix("/"), 2)
    history.add(revision_of(2, count=1))
    history.end(StorageFailed("disk"))
    assert (await anext(watch)).revision == 2
    with pytest.raises(StorageFailed):
        await anext(watch)
