"""The link between brokers with mutual TLS: certificates as `headrace cluster init` writes them, real nodes, real clients."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.test_transactions import read_committed, transactional, write
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.cli.authority import Authority
from headrace.clients import RetryPolicy, RustLogClient
from headrace.clock import SystemClock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.metastore import Put
from headrace.errors import HeadraceError
from headrace.link import link
from headrace.wire.peer import frames
from headrace.wire.peer.frames import Hello, Welcome

NAMES = ("a", "b", "c")
PARTITIONS = 6
PATIENCE_S = 30.0


class Secured:
    """Three brokers of one cluster, a certificate each, all at this machine's address; and the authority of a stranger."""

    def __init__(self, nodes: SharedNodes, own: Path, strange: Path) -> None:
        self.nodes = nodes
        self.own = own
        self.strange = strange

    async def hello(self, callee: str) -> bytes:
        """The first frame of `c` to `callee`, as the link writes it."""
        epochs = {name: (await registration(self.nodes, name)).broker_epoch for name in ("c", callee)}
        cluster_id = (await Cluster.load(self.nodes.store, SystemClock())).cluster_id
        return frames.encode(Hello(frames.VERSION, cluster_id, "c", epochs["c"], callee, epochs[callee]))

    async def greeted(self, callee: str, tls: ssl.SSLContext | None) -> bytes:
        """What `callee` answers to a caller that proves itself with `tls`, and then says what `c` would. Empty if nothing."""
        host, port = self.nodes.members[callee].node.endpoints["peer"]
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
                try:
                    writer.write(await self.hello(callee))
                    return await reader.read(1_000)
                finally:
                    writer.transport.abort()
        except (ssl.SSLError, ConnectionError):
            return b""


async def registration(nodes: SharedNodes, name: str) -> pb.BrokerRegistration:
    item = await nodes.store.get(keys.broker(name))
    assert item is not None
    return values.decode(pb.BrokerRegistration, item.value)


@asynccontextmanager
async def secured(directory: Path) -> AsyncIterator[Secured]:
    own, strange = directory / "own", directory / "strange"
    for site in (own, strange):
        site.mkdir()
        authority = Authority.found(site)
        for name in NAMES:
            (site / name).mkdir()
            authority.issue("127.0.0.1", site / name)

    def certificates(name: str) -> dict[str, str]:
        files = {"ca": "ca.pem", "certificate": "node.pem", "key": "node.key"}
        return {f"rpc.tls.{setting}": str(own / name / file) for setting, file in files.items()}

    async with shared_nodes(directory, NAMES, own=certificates) as nodes:
        await asyncio.to_thread(create, nodes)
        yield Secured(nodes, own, strange)


def create(nodes: SharedNodes) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(PATIENCE_S)


def client_tls(certificates: Path, trusts: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusts / "ca.pem")
    context.load_cert_chain(certificates / "node.pem", certificates / "node.key")
    return context


def rustlog(nodes: SharedNodes, name: str) -> RustLogClient:
    return RustLogClient(nodes.members[name].address_of("rustlog"), retry=RetryPolicy(attempts_max=40))


async def test_transactions_and_forwarded_records_go_over_tls(tmp_path: Path) -> None:
    """Whichever broker is asked, two thirds of the partitions are others'."""
    async with secured(tmp_path) as cluster:

        def run() -> list[bytes]:
            return write(transactional(cluster.nodes.bootstrap, "x"), "orders", PARTITIONS, range(3))

        kept = await asyncio.to_thread(run)
        found = await asyncio.to_thread(read_committed, cluster.nodes.bootstrap, "orders", PARTITIONS)
        assert Counter(found) == Counter(kept)
        async with rustlog(cluster.nodes, "a") as client:
            for partition in range(PARTITIONS):
                await client.produce("orders", [b"passed on"], partition=partition)
        async with rustlog(cluster.nodes, "b") as client:
            for partition in range(PARTITIONS):
                end = (await client.describe_partition("orders", partition)).high_watermark
                answer = await client.fetch("orders", partition=partition, offset=end - 1)
                assert [each.payload for each in answer.records] == [b"passed on"]


async def test_only_a_certificate_of_the_cluster_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And however often strangers knock, brokers still get in: those who were refused take nobody's place."""
    monkeypatch.setattr(link, "CONNECTIONS_MAX", 4)
    async with secured(tmp_path) as cluster:
        anonymous = ssl.create_default_context(cafile=cluster.own / "ca.pem")
        stranger = client_tls(cluster.strange / "a", trusts=cluster.own)
        for refused in (stranger, anonymous, None):
            for _ in range(3):
                assert await cluster.greeted("a", refused) == b""
        answer = await cluster.greeted("a", client_tls(cluster.own / "c", trusts=cluster.own))
        assert answer == frames.encode(Welcome(frames.VERSION))
        async with rustlog(cluster.nodes, "b") as client:
            for partition in range(PARTITIONS):
                await client.produce("orders", [b"v"], partition=partition)


async def test_nothing_is_said_to_an_impostor(tmp_path: Path) -> None:
    """At the address of `b` sits somebody with another authority's certificate: `a` passes nothing on to it."""
    async with secured(tmp_path) as cluster:
        knocked = asyncio.Event()
        heard: list[bytes] = []

        async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read(1_000))
            writer.close()

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cluster.strange / "b" / "node.pem", cluster.strange / "b" / "node.key")
        context.sni_callback = lambda *_: knocked.set()
        impostor = await asyncio.start_server(note, "127.0.0.1", 0, ssl=context)
        async with impostor:
            found = await registration(cluster.nodes, "b")
            found.port_peer = impostor.sockets[0].getsockname()[1]
            await cluster.nodes.store.txn((), (Put(keys.broker("b"), values.encode(found)),))
            topics = cluster.nodes.members["a"].broker.topics
            partition = topics.get("orders").leaders.index("b")
            sending = asyncio.ensure_future(send(cluster.nodes, partition))
            await asyncio.wait_for(knocked.wait(), PATIENCE_S)
            with pytest.raises(HeadraceError, match=r"does not answer|did not answer"):
                await asyncio.wait_for(sending, PATIENCE_S)
        assert heard == []


async def send(nodes: SharedNodes, partition: int) -> None:
    client = RustLogClient(nodes.members["a"].address_of("rustlog"), retry=RetryPolicy(attempts_max=1))
    async with client:
        await client.produce("orders", [b"secret"], partition=partition)
