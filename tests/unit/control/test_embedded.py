"""What is particular to the SQLite metastore: group commit, visibility, fail-stop, its lock and its format."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import HeldFile, store_over

from headrace.control import embedded
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.keyspace import STEP_SIZE, Draft
from headrace.control.metastore import Delete, LeaseId, Put, Read, only, prefix
from headrace.control.sqlite_file import SqliteFile
from headrace.errors import Conflict, Corrupted, Overloaded, StorageFailed

GOLDEN = Path(__file__).parents[2] / "golden" / "metastore"


class TinyFile(SqliteFile):
    """A disk with room for a few pages more: SQLite itself runs out of space."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._connection.execute("PRAGMA max_page_count = 12")


async def test_transactions_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    store = await EmbeddedMetastore.open(tmp_path / "m")
    results = await asyncio.gather(*(store.txn((), (Put(f"/a/{index}", b""),)) for index in range(500)))
    assert [result.revision for result in results] == list(range(2, 502))
    assert store.commit_count == 1
    await store.close()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 191])
async def test_every_row_of_a_commit_is_in_the_file(tmp_path: Path, count: int) -> None:
    store = await EmbeddedMetastore.open(tmp_path / "m")
    await store.txn((), [Put(f"/a/{index}", b"old") for index in range(count + 1)])
    await store.txn((), [Delete(only("/a/0")), *(Put(f"/a/{index + 1}", b"%d" % index) for index in range(count))])
    kept = (await store.range(prefix("/a/"))).items
    await store.close()
    again = await EmbeddedMetastore.open(tmp_path / "m")
    assert (await again.range(prefix("/a/"))).items == kept
    assert {item.key: item.value for item in kept} == {f"/a/{index + 1}": b"%d" % index for index in range(count)}
    await again.close()


async def test_a_lease_granted_and_revoked_in_one_commit_is_gone(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "m")
    keyspace = file.load()
    draft = Draft(keyspace)
    draft.grant_lease(LeaseId(7), 1000)
    draft.revoke_lease(LeaseId(7))
    file.commit(draft)
    assert (file.load().leases(), file.last_lease()) == ({}, 7)
    file.close()


async def test_what_arrives_during_a_commit_rides_on_the_next(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "m")
    file.may_finish.clear()
    store = store_over(file)
    first = asyncio.ensure_future(store.txn((), (Put("/a", b"1"),)))
    assert await asyncio.to_thread(file.has_begun.wait, 60)
    later = [asyncio.ensure_future(store.txn((), (Put("/a", b"%d" % index),))) for index in range(2, 9)]
    file.may_finish.set()
    await asyncio.gather(first, *later)
    assert store.commit_count == 2
    item = await store.get("/a")
    assert item is not None
    assert (item.value, item.version) == (b"8", 8)
    await store.close()


async def test_nobody_sees_what_is_not_yet_durable(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "m")
    file.may_finish.clear()
    store = store_over(file)
    watch = store.watch(prefix("/"), from_revision=store.revision + 1)
    event = asyncio.ensure_future(anext(watch))
    write = asyncio.ensure_future(store.txn((), (Put("/a", b"1"),)))
    assert await asyncio.to_thread(file.has_begun.wait, 60)
    read = asyncio.ensure_future(store.txn((), (Read(only("/a")),)))
    assert await store.get("/a") is None
    assert (await store.range(prefix("/"))).items == ()
    assert not any(task.done() for task in (write, read, event))
    file.may_finish.set()
    assert (await write).is_success
    assert await store.get("/a") is not None
    assert [each.value for each in (await event).events] == [b"1"]
    await read
    await store.close()


async def test_a_cancelled_caller_disturbs_nobody(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "m")
    file.may_finish.clear()
    store = store_over(file)
    begun = asyncio.ensure_future(store.txn((), (Put("/begun", b""),)))
    assert await asyncio.to_thread(file.has_begun.wait, 60)
    waiting = asyncio.ensure_future(store.txn((), (Put("/waiting", b""),)))
    other = asyncio.ensure_future(store.txn((), (Put("/other", b""),)))
    await asyncio.to_thread(lambda: None)
    begun.cancel()
    waiting.cancel()
    file.may_finish.set()
    assert (await other).is_success
    assert [item.key for item in (await store.range(prefix("/"))).items] == ["/begun", "/other"]
    await store.close()


async def test_a_failed_commit_stops_the_store_for_good(tmp_path: Path) -> None:
    store = store_over(TinyFile(tmp_path / "m"))
    watch = store.watch(prefix("/"), from_revision=store.revision + 1)
    await store.txn((), (Put("/kept", b"1"),))
    failing = [store.txn((), (Put(f"/big/{index}", bytes(100_000)),)) for index in range(3)]
    outcomes = await asyncio.gather(*failing, return_exceptions=True)
    assert all(isinstance(outcome, StorageFailed) for outcome in outcomes)
    with pytest.raises(StorageFailed):
        await store.txn((), (Put("/small", b""),))
    with pytest.raises(StorageFailed):
        await store.get("/kept")
    assert [each.key for each in (await anext(watch)).events] == ["/kept"]
    with pytest.raises(StorageFailed):
        await anext(watch)
    await store.close()
    store = await EmbeddedMetastore.open(tmp_path / "m")
    assert [item.key for item in (await store.range(prefix("/"))).items] == ["/kept"]
    await store.close()


async def test_a_queue_that_only_grows_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "COMMANDS_WAITING_MAX", 3)
    store = await EmbeddedMetastore.open(tmp_path / "m")
    outcomes = await asyncio.gather(*(store.txn((), (Put("/a", b""),)) for _ in range(5)), return_exceptions=True)
    assert [isinstance(outcome, Overloaded) for outcome in outcomes] == [False, False, False, True, True]
    await store.close()


async def test_a_second_opener_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "m"
    store = await EmbeddedMetastore.open(path)
    with pytest.raises(Conflict, match="another process"):
        await EmbeddedMetastore.open(path)
    script = "import sys; from headrace.control.sqlite_file import SqliteFile; SqliteFile(sys.argv[1])"
    second = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert "is open in another process" in second.stderr
    await store.txn((), (Put("/a", b""),))
    await store.close()
    store = await EmbeddedMetastore.open(path)
    assert await store.get("/a") is not None
    await store.close()


async def test_a_snapshot_is_a_store_of_its_own(tmp_path: Path) -> None:
    store = await EmbeddedMetastore.open(tmp_path / "m")
    await store.txn((), [Put(f"/a/{index}", b"x" * 50) for index in range(300)])
    await store.snapshot_to(tmp_path / "snapshot")
    before = await store.range(prefix("/"))
    await store.txn((), (Delete(prefix("/")),))
    await store.close()
    copy = await EmbeddedMetastore.open(tmp_path / "snapshot")
    assert await copy.range(prefix("/")) == before
    await copy.close()


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"not a database, and long enough to be sure of it. " * 100)
    with pytest.raises(Corrupted):
        await EmbeddedMetastore.open(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(Corrupted, match="something else"):
        await EmbeddedMetastore.open(tmp_path / "other")


@pytest.mark.parametrize("file", ["m", "m-wal"])
async def test_a_file_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path / file))
    with pytest.raises(StorageFailed, match=rf"/{file} cannot be read and written: Permission denied"):
        await EmbeddedMetastore.open(tmp_path / "m")


async def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    await (await EmbeddedMetastore.open(tmp_path / "m")).close()
    file = sqlite3.connect(tmp_path / "m")
    file.execute("PRAGMA user_version = 3")
    file.close()
    with pytest.raises(Corrupted, match="format 3"):
        await EmbeddedMetastore.open(tmp_path / "m")


@pytest.mark.parametrize("version", [1, 2])
async def test_older_formats_stay_readable(tmp_path: Path, version: int) -> None:
    """The golden files are what each format wrote, as SQL; they are added to by new formats, never rewritten."""
    file = sqlite3.connect(tmp_path / "m")
    file.executescript((GOLDEN / f"v{version}.sql").read_text())
    file.close()
    store = await EmbeddedMetastore.open(tmp_path / "m")
    found = await store.range(prefix("/"))
    assert [(item.key, item.value, item.create_revision, item.mod_revision, item.version) for item in found.items] == [
        ("/headrace/cluster", b"\n\x16AAECAwQFBgcICQoLDA0ODw", 2, 2, 1),
        ("/topics/orders/config", b"\x08\x03\x10\x7f", 3, 5, 2),
    ]
    assert found.revision == 6
    await store.keep_alive(LeaseId(4))
    assert (await store.grant_lease(1000)).id == 6
    await store.close()
    # It is of the newest format by now, and whole.
    store = await EmbeddedMetastore.open(tmp_path / "m")
    assert (await store.range(prefix("/"))).items == found.items
    await store.close()


async def test_a_large_transaction_leaves_the_loop_to_others(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "m")
    store = store_over(file)
    large = asyncio.ensure_future(store.txn((), [Put(f"/a/{index}", b"") for index in range(10 * STEP_SIZE)]))
    turns = 0
    while not file.has_begun.is_set():
        await turn_of_the_loop()
        turns += 1
        if turns == 5:
            later = asyncio.ensure_future(store.txn((), (Put("/a/0", b"later"),)))
            assert (await store.range(prefix("/a"))).items == ()
    assert turns >= 20
    assert (await large).revision == 2
    assert (await later).revision == 3
    item = await store.get("/a/0")
    assert item is not None
    assert item.value == b"later"
    await store.close()
