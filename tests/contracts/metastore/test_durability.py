"""What was acknowledged is there after a restart, however the process ended."""

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest
from tests.support.metastores import Stores

from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Delete, Metastore, Put, only, prefix
from headrace.errors import NotReady

WRITER = """
import asyncio, sys
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Put

async def count_up(store, name):
    item = await store.get(name)
    count = 0 if item is None else int(item.value)
    while True:
        count += 1
        value = b"%d" % count
        # Two keys in one transaction: after a crash they must agree.
        await store.txn((), (Put(name, value), Put(name + "/twin", value)))
        print(name, count, flush=True)

async def main():
    store = await EmbeddedMetastore.open(sys.argv[1])
    await asyncio.gather(*(count_up(store, f"/count/{index}") for index in range(4)))

asyncio.run(main())
"""


async def test_everything_is_there_after_reopening(stores: Stores) -> None:
    store = await stores.open()
    await store.txn((), [Put(f"/a/{index}", b"%d" % index) for index in range(100)])
    await store.txn((), (Put("/a/7", b"again"), Delete(only("/a/8"))))
    before = await store.range(prefix("/"))
    await store.close()
    store = await stores.open()
    assert await store.range(prefix("/")) == before
    assert (await store.txn((), (Put("/a/8", b""),))).revision == before.revision + 1


async def test_a_closed_store_refuses_work(store: Metastore) -> None:
    await store.close()
    with pytest.raises(NotReady):
        await store.get("/a")
    with pytest.raises(NotReady):
        await store.txn((), (Put("/a", b""),))


async def test_close_finishes_what_was_accepted(stores: Stores) -> None:
    store = await stores.open()
    pending = [asyncio.ensure_future(store.txn((), (Put(f"/a/{index}", b""),))) for index in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(result.is_success for result in await asyncio.gather(*pending))
    assert len((await (await stores.open()).range(prefix("/a/"))).items) == 20


async def test_kill_never_loses_an_acknowledged_transaction(tmp_path: Path) -> None:
    path = tmp_path / "metastore.sqlite"
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    for _ in range(10):
        await write_until_killed(path, acknowledged, line_count=chance.randrange(50, 400))
        store = await EmbeddedMetastore.open(path)
        for name, count in acknowledged.items():
            item, twin = await store.get(name), await store.get(name + "/twin")
            assert item is not None
            assert twin is not None
            assert int(item.value) >= count
            assert (twin.value, twin.mod_revision) == (item.value, item.mod_revision)
        await store.close()
    assert len(acknowledged) == 4


async def write_until_killed(path: Path, acknowledged: dict[str, int], *, line_count: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(line_count):
        note(await process.stdout.readline(), acknowledged)
    process.send_signal(signal.SIGKILL)
    rest = await process.stdout.read()
    for line in rest.splitlines(keepends=True):
        note(line, acknowledged)
    await process.wait()


def note(line: bytes, acknowledged: dict[str, int]) -> None:
    # The last line may be cut short by the kill; it was acknowledged only when it is whole.
    if line.endswith(b"\n"):
        name, count = line.split()
        acknowledged[name.decode()] = int(count)
