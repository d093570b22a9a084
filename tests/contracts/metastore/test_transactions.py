"""Revisions, compares, atomicity, ranges."""

import asyncio

import pytest
from tests.support.metastores import NarrowMetastore, newest_revision

from headrace.control.metastore import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    Metastore,
    Op,
    Put,
    RangeResult,
    Read,
    Relation,
    Target,
    TxnLimits,
    absent,
    exists,
    only,
    prefix,
    read_all,
    unchanged,
    value_is,
    write_in_chunks,
)
from headrace.errors import Invalid, TooLarge


async def put(store: Metastore, key: str, value: bytes = b"v") -> int:
    return (await store.txn((), (Put(key, value),))).revision


async def keys_in(store: Metastore, keys: KeyRange) -> list[str]:
    return [item.key for item in (await store.range(keys)).items]


async def test_an_absent_key_reads_as_none(store: Metastore) -> None:
    assert await store.get("/nothing") is None


@pytest.mark.requirement("R3.30")
async def test_each_writing_transaction_raises_the_revision_by_one(store: Metastore) -> None:
    first = await put(store, "/a")
    second = (await store.txn((), (Put("/b", b"1"), Put("/c", b"2")))).revision
    assert second == first + 1
    found = await store.range(prefix("/"))
    assert found.revision == second
    assert {item.key: item.mod_revision for item in found.items} == {"/a": first, "/b": second, "/c": second}


async def test_reading_and_deleting_nothing_leave_the_revision(store: Metastore) -> None:
    revision = await put(store, "/a")
    result = await store.txn((), (Read(prefix("/")), Delete(prefix("/nothing"))))
    assert result.revision == revision
    assert result.results[1] == DeleteResult(0)
    assert (await store.range(prefix("/"))).revision == revision


async def test_a_key_counts_its_versions_and_remembers_its_creation(store: Metastore) -> None:
    created = await put(store, "/a", b"1")
    modified = await put(store, "/a", b"2")
    item = await store.get("/a")
    assert item is not None
    assert (item.value, item.create_revision, item.mod_revision, item.version) == (b"2", created, modified, 2)


async def test_a_deleted_key_begins_anew(store: Metastore) -> None:
    await put(store, "/a")
    await put(store, "/a")
    await store.txn((), (Delete(only("/a")),))
    created = await put(store, "/a")
    item = await store.get("/a")
    assert item is not None
    assert (item.create_revision, item.version) == (created, 1)


async def test_compares_choose_the_branch(store: Metastore) -> None:
    first = await put(store, "/a", b"m")
    second = await put(store, "/a", b"m")
    held = [
        exists("/a"),
        absent("/b"),
        value_is("/a", b"m"),
        unchanged("/a", second),
        unchanged("/b", 0),
        Compare("/a", Target.VALUE, Relation.GREATER, b"l"),
        Compare("/a", Target.VALUE, Relation.LESS, b"n"),
        Compare("/a", Target.VALUE, Relation.NOT_EQUAL, b"x"),
        Compare("/a", Target.CREATE_REVISION, Relation.EQUAL, first),
        Compare("/a", Target.VERSION, Relation.EQUAL, 2),
        Compare("/a", Target.MOD_REVISION, Relation.GREATER, first),
    ]
    failed = [
        exists("/b"),
        absent("/a"),
        value_is("/a", b"x"),
        value_is("/b", b""),
        unchanged("/a", first),
        Compare("/b", Target.VALUE, Relation.NOT_EQUAL, b"x"),
        Compare("/a", Target.CREATE_REVISION, Relation.NOT_EQUAL, first),
        Compare("/a", Target.VERSION, Relation.LESS, 2),
    ]
    for compare in held:
        assert (await store.txn((compare,), ())).is_success, compare
    for compare in failed:
        assert not (await store.txn((compare,), ())).is_success, compare
    assert (await store.txn(held, ())).is_success
    assert not (await store.txn((*held, failed[0]), ())).is_success


async def test_the_other_branch_runs_when_a_compare_fails(store: Metastore) -> None:
    await put(store, "/a", b"1")
    result = await store.txn((absent("/a"),), (Put("/a", b"2"),), (Read(only("/a")), Put("/seen", b"")))
    assert not result.is_success
    read = result.results[0]
    assert isinstance(read, RangeResult)
    assert [item.value for item in read.items] == [b"1"]
    assert await store.get("/seen") is not None


async def test_operations_of_one_transaction_see_those_before(store: Metastore) -> None:
    await put(store, "/k/a")
    result = await store.txn((), (Put("/k/b", b""), Read(prefix("/k/")), Delete(only("/k/a")), Read(prefix("/k/"))))
    reads = [each for each in result.results if isinstance(each, RangeResult)]
    assert [[item.key for item in read.items] for read in reads] == [["/k/a", "/k/b"], ["/k/b"]]


@pytest.mark.parametrize(
    "ops",
    [
        (Put("/a", b"1"), Put("/b", b"1"), Put("/a", b"2")),
        (Put("/a/1", b"1"), Delete(prefix("/a/"))),
    ],
    ids=["two puts", "put and delete"],
)
async def test_a_transaction_that_writes_a_key_twice_is_refused_whole(store: Metastore, ops: tuple[Op, ...]) -> None:
    revision = await put(store, "/z")
    with pytest.raises(Invalid):
        await store.txn((), ops)
    assert await keys_in(store, prefix("/")) == ["/z"]
    assert await put(store, "/z") == revision + 1


async def test_a_compare_of_the_wrong_type_is_refused(store: Metastore) -> None:
    with pytest.raises(Invalid):
        await store.txn((Compare("/a", Target.VERSION, Relation.EQUAL, b"1"),), ())


async def test_a_transaction_past_the_limit_is_refused(store: Metastore) -> None:
    read = Read(only("/a"))
    limits = store.txn_limits
    with pytest.raises(TooLarge):
        await store.txn((), (read,) * (limits.ops_max + 1))
    with pytest.raises(TooLarge):
        await store.txn((absent("/a"),) * (limits.ops_max + 1), ())
    with pytest.raises(TooLarge):
        await store.txn((), (Put("/a", bytes(limits.bytes_max)),))
    assert await store.get("/a") is None


async def test_a_range_is_in_key_order_and_keeps_to_its_bounds(store: Metastore) -> None:
    names = ["/a", "/a/", "/a/10", "/a/2", "/a/é", "/a0", "/b"]
    await store.txn((), [Put(name, b"") for name in reversed(names)])
    assert await keys_in(store, prefix("/a/")) == ["/a/", "/a/10", "/a/2", "/a/é"]
    assert await keys_in(store, only("/a")) == ["/a"]
    assert await keys_in(store, KeyRange("/a/10", "/a0")) == ["/a/10", "/a/2", "/a/é"]
    assert await keys_in(store, prefix("")) == names


async def test_a_limited_range_says_that_there_is_more(store: Metastore) -> None:
    await store.txn((), [Put(f"/a/{index}", b"") for index in range(5)])
    first = await store.range(prefix("/a/"), limit=2)
    assert ([item.key for item in first.items], first.has_more) == (["/a/0", "/a/1"], True)
    last = await store.range(prefix("/a/"), limit=2, is_descending=True)
    assert ([item.key for item in last.items], last.has_more) == (["/a/4", "/a/3"], True)
    assert not (await store.range(prefix("/a/"), limit=5)).has_more


async def test_deleting_a_range_takes_only_what_is_in_it(store: Metastore) -> None:
    await store.txn((), [Put(f"/{part}/{index}", b"") for part in "abc" for index in range(30)])
    result = await store.txn((), (Delete(prefix("/b/")),))
    assert result.results == (DeleteResult(30),)
    assert len(await keys_in(store, prefix("/"))) == 60
    assert await keys_in(store, prefix("/b/")) == []


async def test_no_update_is_lost_among_concurrent_writers(store: Metastore) -> None:
    await put(store, "/count", b"0")

    async def add_one() -> None:
        while True:
            item = await store.get("/count")
            assert item is not None
            value = b"%d" % (int(item.value) + 1)
            if (await store.txn((unchanged("/count", item.mod_revision),), (Put("/count", value),))).is_success:
                return

    await asyncio.gather(*(add_one() for _ in range(60)))
    item = await store.get("/count")
    assert item is not None
    assert (item.value, item.version) == (b"60", 61)


async def test_of_many_creators_of_a_key_one_wins(store: Metastore) -> None:
    results = await asyncio.gather(*(store.txn((absent("/a"),), (Put("/a", b"%d" % index),)) for index in range(50)))
    assert sum(result.is_success for result in results) == 1


async def test_bulk_writes_go_in_chunks_under_their_guards(store: Metastore) -> None:
    narrow = NarrowMetastore(store, TxnLimits(ops_max=4, bytes_max=1000))
    ops = [Put(f"/a/{index}", b"") for index in range(10)]
    before = await put(store, "/guard")
    assert await write_in_chunks(narrow, ops, guards=(exists("/guard"),))
    found = await store.range(prefix("/a/"))
    assert (len(found.items), found.revision) == (10, before + 3)
    assert not await write_in_chunks(narrow, ops, guards=(absent("/guard"),))
    large = [Put(f"/b/{index}", bytes(300)) for index in range(4)]
    assert await write_in_chunks(narrow, large, guards=(exists("/guard"),))
    found = await store.range(prefix("/b/"))
    assert (len(found.items), found.revision) == (4, before + 5)


async def test_pages_show_one_revision_whatever_is_written_meanwhile(store: Metastore) -> None:
    await store.txn((), [Put(f"/a/{index}", b"before") for index in range(7)])
    revision = (await store.range(prefix("/a/"))).revision
    pages = []
    async for page in store.pages(prefix("/a/"), limit=3):
        pages.append(page)
        await store.txn((), [Put(f"/a/{index}", b"after") for index in range(9)])
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert {page.revision for page in pages} == {revision}
    assert [page.has_more for page in pages] == [True, True, False]
    assert {item.value for page in pages for item in page.items} == {b"before"}


async def test_an_empty_range_is_one_empty_page(store: Metastore) -> None:
    assert [page.items async for page in store.pages(prefix("/nothing/"))] == [()]
    assert (await read_all(store, prefix("/nothing/"))).revision == await newest_revision(store)
