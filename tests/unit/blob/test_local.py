"""Files of the local store: large reads go past the page cache, where the filesystem lets them."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.blob.local import LocalBlobStore
from headrace.errors import AlreadyExists, ObjectNotFound, StoreUnavailable

MIB = 1024 * 1024
DATA = os.urandom(3 * MIB + 1001)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalBlobStore]:
    store = LocalBlobStore(tmp_path)
    await store.put("a/b", [DATA])
    yield store
    await store.close()


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, MIB + 7])
@pytest.mark.parametrize("length", [MIB - 1, MIB, 2 * MIB - 7])
async def test_any_range_is_read_exactly(store: LocalBlobStore, position: int, length: int) -> None:
    assert await store.get_range("a/b", position, length) == DATA[position : position + length]


@pytest.mark.parametrize("length", [100, 2 * MIB])
async def test_a_range_up_to_the_last_byte_is_there_and_one_more_is_not(store: LocalBlobStore, length: int) -> None:
    assert await store.get_range("a/b", len(DATA) - length, length) == DATA[-length:]
    with pytest.raises(StoreUnavailable, match=f"got {length} of {length + 1} bytes"):
        await store.get_range("a/b", len(DATA) - length, length + 1)
    with pytest.raises(StoreUnavailable, match="got 0 of"):
        await store.get_range("a/b", len(DATA) + 8192, length)


@pytest.mark.parametrize("length", [100, 2 * MIB])
async def test_what_is_not_there_is_not_found(store: LocalBlobStore, length: int) -> None:
    with pytest.raises(ObjectNotFound):
        await store.get_range("a/c", 0, length)


async def test_a_filesystem_without_direct_reads_is_read_all_the_same(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open
    refused = []

    def refuse_direct(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse_direct)
    assert await store.get_range("a/b", 5, 2 * MIB) == DATA[5 : 5 + 2 * MIB]
    assert len(refused) == 1


async def test_no_draft_is_left_behind(store: LocalBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("new/folder/c", [b"1"])
    await store.put("new/folder/c", [b"2"])
    await store.put_if_absent("other/d", [b"3"])
    with pytest.raises(AlreadyExists):
        await store.put_if_absent("other/d", [b"4"])

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreUnavailable):
            await store.put("other/e", [b"5"])
    assert files_in(tmp_path) == ["a/b", "new/folder/c", "other/d"]
    assert await store.get("new/folder/c") == b"2"
    assert await store.get("other/d") == b"3"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
