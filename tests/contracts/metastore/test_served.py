"""A metastore served to others: lost replies over a real connection, a server that goes and comes back, etcd's own tool."""

import asyncio
import json
import random
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.metastores import LossyMetastore, ManualClock, newest_revision, take
from tests.support.ports import kept_port

from headrace.control import keys
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, take_numbers
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.etcd import etcd_pb2 as etcd_pb
from headrace.control.etcd.server import Context, EtcdServer
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.metastore import Metastore, Put, prefix, read_all
from headrace.errors import OutcomeUnknown, RevisionCompacted, Unavailable


@asynccontextmanager
async def served(store: Metastore, address: str = "127.0.0.1:0") -> AsyncIterator[int]:
    server = EtcdServer(store)
    port = await server.start(address)
    try:
        yield port
    finally:
        await server.stop()


async def client_of(port: int) -> EtcdMetastore:
    return await EtcdMetastore.open(
        EtcdSettings(endpoints=(f"127.0.0.1:{port}",), prefix=""), call_s=3.0, progress_s=0.1
    )


@pytest.mark.parametrize("seed", range(5))
async def test_lost_requests_and_replies_change_nothing_twice_and_forget_nothing(seed: int) -> None:
    home = await EmbeddedMetastore.open()
    lossy = LossyMetastore(home, random.Random(seed))
    async with served(lossy) as port:
        store = await client_of(port)
        cluster = await Cluster.load(store, ManualClock())
        await cluster.register("b1", pb.BrokerRegistration(host="h"))
        numbers: list[int] = []
        for index in range(4):
            numbers += await take_numbers(store, keys.NEXT_OBJECT_ID, 3)
            await cluster.create_topic(f"t{index}", partitions=300, overrides={})
            await cluster.raise_leader_epochs()
        await cluster.delete_topic("t2")
        await store.close()
    assert lossy.lost_count > 0
    assert len(numbers) == len(set(numbers))
    fresh = await Cluster.load(home, ManualClock())
    assert {topic.name for topic in fresh.topics} == {"t0", "t1", "t3"}
    assert {topic.name for topic in cluster.topics} == {"t0", "t1", "t3"}
    assert all(cluster.topics.get(name).revision == fresh.topics.get(name).revision for name in ("t0", "t1", "t3"))
    await home.close()


async def test_a_watch_goes_on_where_it_was_when_the_server_is_back() -> None:
    home = await EmbeddedMetastore.open()
    with kept_port() as port:
        address = f"127.0.0.1:{port}"
        async with served(home, address):
            store = await client_of(port)
            watch = store.watch(prefix("/"), from_revision=await newest_revision(store) + 1)
            await store.txn((), (Put("/a", b"1"),))
            assert [event.value for event in await take(watch, 1)] == [b"1"]
            waiting = asyncio.ensure_future(take(watch, 2))
            await asyncio.sleep(0)
        await home.txn((), (Put("/a", b"2"),))
        with pytest.raises(Unavailable):
            await store.get("/a")
        with pytest.raises(OutcomeUnknown):
            await store.txn((), (Put("/a", b"x"),))
        async with served(home, address):
            await home.txn((), (Put("/a", b"3"),))
            async with asyncio.timeout(30):
                assert [event.value for event in await waiting] == [b"2", b"3"]
            await store.close()
    await home.close()


async def test_pages_that_nobody_came_for_are_forgotten() -> None:
    home = await EmbeddedMetastore.open()
    await home.txn((), [Put(f"/a/{index:03}", b"") for index in range(200)])
    async with served(home) as port:
        store = await client_of(port)
        slow = store.pages(prefix("/a/"), limit=10)
        await anext(slow)
        for index in range(100):
            await home.txn((), (Put("/b", b"%d" % index),))
            await anext(store.pages(prefix("/a/"), limit=10))
        with pytest.raises(RevisionCompacted):
            await anext(slow)
        assert len((await read_all(store, prefix("/a/"))).items) == 200
        await store.close()
    await home.close()


async def test_etcds_own_tool_reads_and_writes_it(tmp_path: Path) -> None:
    program = shutil.which("etcdctl")
    if program is None:
        pytest.skip("no etcdctl on the path (Debian: etcd-client)")
    home = await EmbeddedMetastore.open()
    async with served(home) as port:

        async def etcdctl(*words: str, text: str = "") -> str:
            command = [program, f"--endpoints=127.0.0.1:{port}", *words]
            done = await asyncio.to_thread(
                subprocess.run,
                command,
                env={"ETCDCTL_API": "3"},
                input=text,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        await home.txn((), [Put(f"/topics/t{index}", b"v%d" % index) for index in range(3)])
        assert await etcdctl("get", "--prefix", "/topics/", "--print-value-only") == "v0\nv1\nv2\n"
        found = json.loads(await etcdctl("get", "/topics/t1", "-w", "json"))
        assert found["kvs"][0]["version"] == 1
        won = 'value("/topics/t1") = "v1"\n\nput /topics/t1 other\n\nget /topics/t1\n\n'
        assert (await etcdctl("txn", text=won)).startswith("SUCCESS")
        assert (await etcdctl("txn", text=won)).startswith("FAILURE")
        item = await home.get("/topics/t1")
        assert item is not None
        assert item.value == b"other"
        lease = (await etcdctl("lease", "grant", "60")).split()[1]
        assert "keepalived" in await etcdctl("lease", "keep-alive", "--once", lease)
        assert "revoked" in await etcdctl("lease", "revoke", lease)
    await home.close()


class MuteServer(EtcdServer):
    """As one that was paused: what was begun is never answered."""

    async def _watch(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        yield etcd_pb.WatchResponse(created=True)
        await asyncio.Event().wait()


async def test_a_watcher_leaves_a_server_that_says_nothing_any_more() -> None:
    home = await EmbeddedMetastore.open()
    mute, healthy = MuteServer(home), EtcdServer(home)
    ports = [await each.start("127.0.0.1:0") for each in (mute, healthy)]
    store = await EtcdMetastore.open(
        EtcdSettings(endpoints=tuple(f"127.0.0.1:{port}" for port in ports), prefix=""), progress_s=0.05
    )
    watch = store.watch(prefix("/a/"), from_revision=await newest_revision(home) + 1)
    await home.txn((), (Put("/a/1", b"v"),))
    async with asyncio.timeout(30):
        (event,) = await take(watch, 1)
    assert event.key == "/a/1"
    await store.close()
    for server in (mute, healthy):
        await server.stop()
    await home.close()
