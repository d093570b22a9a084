"""A metastore's file that a disk, a copy or a person has changed: refused with the way on, or exactly what was written."""

import asyncio
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Delete, KeyValue, Put, only, prefix
from headrace.errors import Corrupted

FLIPS = 400
MARK = "metastore.mark"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A file with a few hundred entries, changed and deleted in several commits."""

    async def write() -> None:
        store = await EmbeddedMetastore.open(tmp_path / "m", mark=tmp_path / MARK)
        await store.txn((), [Put(f"/topics/t/segments/{index:020d}", bytes(60)) for index in range(300)])
        await store.txn((), [Put(f"/topics/t/segments/{index:020d}", b"x" * 80) for index in range(0, 300, 3)])
        await store.txn((), [Delete(only(f"/topics/t/segments/{index:020d}")) for index in range(100, 150)])
        await store.grant_lease(20_000)
        await store.close()

    asyncio.run(write())
    return tmp_path


def opened(path: Path, mark: Path | None = None, expendable: str = "") -> tuple[KeyValue, ...]:
    async def read() -> tuple[KeyValue, ...]:
        ranges = (prefix(expendable),) if expendable else ()
        store = await EmbeddedMetastore.open(path, mark=mark, expendable=ranges)
        try:
            return (await store.range(prefix("/"))).items
        finally:
            await store.close()

    return asyncio.run(read())


def test_no_flipped_bit_is_believed(base: Path) -> None:
    right = opened(base / "m")
    whole = (base / "m").read_bytes()
    chance = random.Random(8)
    refused = 0
    for _ in range(FLIPS):
        damaged = bytearray(whole)
        position = chance.randrange(len(damaged))
        damaged[position] ^= 1 << chance.randrange(8)
        (base / "copy").write_bytes(damaged)
        try:
            assert opened(base / "copy") == right, f"byte {position} changed what is read"
        except Corrupted:
            refused += 1
    assert refused > FLIPS // 4


def test_a_refusal_names_the_file_and_the_way_on(base: Path) -> None:
    data = (base / "m").read_bytes()
    (base / "m").write_bytes(data.replace(b"x" * 80, b"x" * 40 + b"y" + b"x" * 39, 1))
    with pytest.raises(
        Corrupted, match=r"1 damaged entries of 250, among them /topics/t/.*headrace tier restore"
    ) as told:
        opened(base / "m")
    assert str(base / "m") in str(told.value)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM item WHERE key LIKE '%77'",
        "UPDATE counter SET value = value - 1 WHERE name = 'revision'",
        "DELETE FROM lease",
        "DELETE FROM counter WHERE name = 'digest'",
    ],
)
def test_what_is_missing_is_noticed_though_every_row_is_whole(base: Path, change: str) -> None:
    file = sqlite3.connect(base / "m")
    file.execute(change)
    file.commit()
    file.close()
    with pytest.raises(Corrupted, match="missing, stale or changed"):
        opened(base / "m")


def test_a_damaged_row_that_can_be_done_without_is_dropped_once(base: Path) -> None:
    async def put_expendable() -> None:
        store = await EmbeddedMetastore.open(base / "m")
        await store.txn((), [Put("/groups/a", b"aaaaaaaa"), Put("/groups/b", b"bbbbbbbb")])
        await store.close()

    async def damaged() -> tuple[str, ...]:
        store = await EmbeddedMetastore.open(base / "m", expendable=(prefix("/groups/"),))
        await store.close()
        return store.damaged

    asyncio.run(put_expendable())
    data = (base / "m").read_bytes()
    (base / "m").write_bytes(data.replace(b"aaaaaaaa", b"aaaaaaab"))
    with pytest.raises(Corrupted, match="/groups/a"):
        opened(base / "m")
    assert asyncio.run(damaged()) == ("/groups/a",)
    assert asyncio.run(damaged()) == ()
    assert [item.key for item in opened(base / "m") if item.key.startswith("/groups")] == ["/groups/b"]


# -- the journal -------------------------------------------------------------------------------------------------------


def crashed(base: Path) -> tuple[Path, Path]:
    """What a killed process leaves of the file: commits that only the -wal file has. And its mark."""
    there = base / "crashed"
    there.mkdir()

    async def commit_and_copy() -> None:
        store = await EmbeddedMetastore.open(base / "m", mark=base / MARK)
        for index in range(20):
            await store.txn((), (Put(f"/late/{index}", b"late"),))
        for name in ("m", "m-wal", MARK):
            shutil.copy(base / name, there / name)
        await store.close()

    asyncio.run(commit_and_copy())
    return there / "m", there / MARK


def test_what_a_kill_leaves_is_whole(base: Path) -> None:
    path, mark = crashed(base)
    assert sum(item.key.startswith("/late") for item in opened(path, mark)) == 20


@pytest.mark.parametrize("damage", ["missing", "cut short", "one bit", "empty"])
def test_a_journal_that_rolls_the_file_back_is_noticed(base: Path, damage: str) -> None:
    path, mark = crashed(base)
    journal = path.with_name("m-wal")
    data = bytearray(journal.read_bytes())
    if damage == "missing":
        journal.unlink()
    else:
        data[len(data) // 2] ^= 4
        journal.write_bytes({"cut short": data[: len(data) // 2], "one bit": data, "empty": bytearray()}[damage])
    with pytest.raises(Corrupted, match=r"is at revision \d+ and was at \d+ before.*headrace tier restore"):
        opened(path, mark)
    # Refused again, and not believed the second time.
    with pytest.raises(Corrupted, match="was at"):
        opened(path, mark)


@pytest.mark.parametrize("is_killed_before_it_is_put_back", [False, True])
def test_a_refusal_leaves_the_journal_where_it_was(base: Path, is_killed_before_it_is_put_back: bool) -> None:
    """With the right file back beside it, everything is there."""
    path, mark = crashed(base)
    right, journal = path.read_bytes(), path.with_name("m-wal").read_bytes()
    path.write_bytes(right[: len(right) // 2])
    with pytest.raises(Corrupted):
        opened(path, mark)
    assert path.with_name("m-wal").read_bytes() == journal
    path.write_bytes(right)
    if is_killed_before_it_is_put_back:
        path.with_name("m-wal").rename(path.with_name("m-wal.kept"))
    assert sum(item.key.startswith("/late") for item in opened(path, mark)) == 20
    assert not path.with_name("m-wal.kept").exists()


def test_an_older_copy_of_the_file_is_noticed(base: Path) -> None:
    shutil.copy(base / "m", base / "old")
    crashed(base)
    (base / "old").replace(base / "m")
    with pytest.raises(Corrupted, match="an older copy"):
        opened(base / "m", base / MARK)


def test_a_copy_torn_between_the_file_and_its_journal_is_noticed(base: Path) -> None:
    """The file is copied, SQLite moves the journal into the original and begins a new one, then the journal is copied."""
    there = base / "torn"
    there.mkdir()

    async def copy_while_writing() -> None:
        store = await EmbeddedMetastore.open(base / "m", mark=base / MARK)
        await store.txn((), [Put(f"/topics/t/segments/{index:020d}", b"early") for index in range(50)])
        shutil.copy(base / "m", there / "m")
        for round_ in range(60):
            await store.txn((), [Put(f"/new/{round_:03d}/{index:020d}", bytes(900)) for index in range(40)])
        shutil.copy(base / "m-wal", there / "m-wal")
        shutil.copy(base / MARK, there / MARK)
        await store.close()

    asyncio.run(copy_while_writing())
    with pytest.raises(Corrupted):
        opened(there / "m", there / MARK)


def test_a_missing_file_is_not_made_anew_beside_its_mark(base: Path) -> None:
    (base / "m").unlink()
    with pytest.raises(Corrupted, match=r"is missing, and was at revision \d+.*headrace tier restore"):
        opened(base / "m", base / MARK)
    assert not (base / "m").exists()


def test_somebody_elses_file_is_refused_until_it_is_meant(base: Path, tmp_path: Path) -> None:
    opened(tmp_path / "other")
    (tmp_path / "other").replace(base / "m")
    with pytest.raises(Corrupted, match=r"not the one that .* belongs to"):
        opened(base / "m", base / MARK)
    (base / MARK).unlink()
    assert opened(base / "m", base / MARK) == ()
    assert opened(base / "m", base / MARK) == ()


def test_a_new_file_takes_the_place_of_the_marked_one_when_it_is_meant_to(base: Path) -> None:
    (base / "m").unlink()

    async def make() -> None:
        store = await EmbeddedMetastore.open(base / "m", mark=base / MARK, is_new=True)
        await store.txn((), (Put("/a", b""),))
        await store.close()

    asyncio.run(make())
    assert [item.key for item in opened(base / "m", base / MARK)] == ["/a"]


def test_a_file_that_was_rolled_back_does_not_pass_for_a_new_one(base: Path) -> None:
    path, mark = crashed(base)
    path.with_name("m-wal").unlink()
    with pytest.raises(Corrupted, match="was at"):
        asyncio.run(EmbeddedMetastore.open(path, mark=mark, is_new=True))
    with pytest.raises(Corrupted, match="was at"):
        opened(path, mark)


def test_a_damaged_mark_stops_nobody(base: Path) -> None:
    right = opened(base / "m", base / MARK)
    (base / MARK).write_bytes(b"garbage, and long enough to be a mark")
    assert opened(base / "m", base / MARK) == right
