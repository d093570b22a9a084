"""Settings of `headrace broker` and `headrace controller`, by what is seen of real processes from outside.

What stops a start, and what a setting is when nobody says, have unit tests as well (`tests/unit/config`).
"""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from obstore.store import S3Store
from tests.support.cluster import ClusterProcesses, cluster_processes
from tests.support.etcd import etcd_servers
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import BUCKET, CREDENTIALS, S3Server, moto
from tests.support.ports import kept_port
from tests.support.quic import HELLO, HELLO_VERSION, decoded, foreign_connection, read_frame
from tests.support.scripted_s3 import scripted_s3

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.store import EtcdMetastore
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("role_settings")]

PATIENCE_S = 90.0
MIB = 1024 * 1024
RING_BYTES = 12 * MIB
READ_CACHE_BYTES = 8 * MIB
PARTITION_BYTES = 32 * MIB
"""More than the ring and the small caches hold, and less than the large ones."""
PIECE = os.urandom(256 * 1024)


class Site:
    """A controller and two brokers over one bucket: `narrow` is told of small caches, `wide` of large ones."""

    def __init__(self, cluster: ClusterProcesses, store: S3Server, directory: Path) -> None:
        self.cluster = cluster
        self.store = store
        self.directory = directory
        (self.controller,) = cluster.controllers

    def start(self, dead_endpoint: str) -> None:
        shared = {
            # The first of them is nobody's: a broker goes through the list.
            "controller.endpoints": f"{dead_endpoint},{self.controller.settings['listen.rpc']}",
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.endpoint": self.store.endpoint,
            "tier.cache.disk.bytes": 0,
            "wal.capacity.bytes": RING_BYTES,
        }
        narrow = {
            "rack.id": "cellar",
            "wal.path": self.directory / "another-disk",
            "cache.write.size.bytes": MIB,
            "cache.read.size.bytes": READ_CACHE_BYTES,
        }
        wide = {"cache.write.size.bytes": 256 * MIB, "cache.read.size.bytes": 256 * MIB}
        self.cluster.start_broker("narrow", {**shared, **narrow})
        self.cluster.start_broker("wide", {**shared, **wide})

    @property
    def narrow(self) -> NodeProcess:
        return self.cluster.brokers["narrow"]

    @property
    def wide(self) -> NodeProcess:
        return self.cluster.brokers["wide"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the file: tests only look at it, or add to it what is theirs."""
    directory = tmp_path_factory.mktemp("cluster")
    with moto() as store, kept_port() as nobodys, cluster_processes(directory) as cluster:
        cluster.start_controllers()
        running = Site(cluster, store, directory)
        running.start(f"127.0.0.1:{nobodys}")
        yield running


def asked(address: object, path: str) -> Any:  # Any: what the API answers, as JSON
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
        return msgspec.json.decode(answer.read())["data"]


def metric(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics", timeout=PATIENCE_S) as page:
        (line,) = [line for line in page.read().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.requirement("R3.95", "R3.98", "R3.106", "R3.107", "R3.109")
def test_a_controller_tells_at_its_addresses_of_the_brokers_that_found_it(site: Site) -> None:
    http, rpc = site.controller.settings["listen.http"], site.controller.settings["listen.rpc"]
    found = {row["id"]: row for row in asked(http, "/api/v1/brokers")["brokers"]}
    assert (found["narrow"]["rack_id"], found["wide"]["rack_id"]) == ("cellar", None)
    expected = [{"id": "c0", "endpoint": rpc, "is_active": True}]
    eventually(
        lambda: bool(asked(http, "/api/v1/cluster")["controllers"] == expected), PATIENCE_S, f"not seen: {expected}"
    )


@pytest.mark.requirement("R3.94")
def test_a_broker_that_nobody_named_names_itself_once(site: Site) -> None:
    settings = {**site.wide.settings, **site.cluster.doors()}
    del settings["broker.id"]
    unnamed = NodeProcess(site.directory / "unnamed", settings, command=("broker",))

    def own_row() -> Any:  # Any: as above
        (row,) = [each for each in asked(unnamed.endpoints["admin"], "/api/v1/brokers")["brokers"] if each["is_this"]]
        return row["id"], row["number"]

    try:
        unnamed.start()
        name, number = own_row()
        assert name not in ("", "narrow", "wide")
        unnamed.restart()
        assert own_row() == (name, number)
    finally:
        unnamed.stop()


@pytest.mark.requirement("R3.96")
async def test_quic_is_spoken_where_it_was_told_to_listen(site: Site) -> None:
    async with foreign_connection(str(site.narrow.settings["listen.quic"])) as connection:
        reader, writer = await connection.create_stream()
        writer.write(encode_request(HELLO, HELLO_VERSION, 1, "tests"))
        assert decoded(await read_frame(reader), HELLO_VERSION, ApiVersionsResponse).error_code == 0


@pytest.mark.requirement("R3.99", "R3.100")
def test_the_ring_lies_where_it_was_told_and_is_as_large(site: Site) -> None:
    (ring,) = [each for each in (site.directory / "another-disk").iterdir() if each.name == "ring"]
    assert ring.stat().st_size == RING_BYTES
    assert not (site.narrow.data_dir / "wal").exists()


@pytest.mark.requirement("R3.101", "R3.102", "R3.103", "R3.104")
def test_caches_hold_as_much_as_they_were_told_of_what_is_in_the_bucket(site: Site) -> None:
    leaders = fill(site.narrow.kafka, "cold")
    bucket = S3Store(
        BUCKET,
        config={"endpoint": site.store.endpoint, "region": "us-east-1", **_credentials()},
        client_options={"allow_http": True},
    )
    stored = sum(each["size"] for page in obstore.list(bucket) for each in page)
    assert stored >= 2 * PARTITION_BYTES
    for partition in leaders.values():
        assert read_bytes(site.narrow.kafka, "cold", partition) == PARTITION_BYTES
    # What neither the hot tail nor the ring has room for is downloaded, and the read cache keeps no more of it than it may.
    assert metric(site.narrow, "headrace_tier_cache_misses_total") > 0
    assert 0 < metric(site.narrow, "headrace_tier_cache_bytes") <= READ_CACHE_BYTES
    assert metric(site.wide, "headrace_tier_cache_misses_total") == 0


def fill(bootstrap: str, topic: str) -> dict[int, int]:
    """A partition for each of two brokers; gives which leads which."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"durability": "object"})])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": MIB, "linger.ms": 20})
    for number in range(2 * PARTITION_BYTES // len(PIECE)):
        producer.produce(topic, PIECE, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    leaders = {each.leader: index for index, each in found.items()}
    assert len(leaders) == 2, "each broker leads one"
    return leaders


def read_bytes(bootstrap: str, topic: str, partition: int) -> int:
    """Of all records, from the first one on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reads-{partition}", "enable.auto.commit": False})
    size = 0
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while size < PARTITION_BYTES and (message := consumer.poll(PATIENCE_S)) is not None:
            assert message.error() is None, message.error()
            size += len(message.value() or b"")
    finally:
        consumer.close()
    return size


def _credentials() -> dict[str, str]:
    return {name.lower(): value for name, value in CREDENTIALS.items()}


@pytest.mark.requirement("R3.103", "R3.104", "R3.105")
@pytest.mark.parametrize(("region", "signed_for"), [("eu-north-1", "eu-north-1"), (None, "us-central1")])
def test_requests_are_signed_for_the_region_and_go_to_the_bucket(
    site: Site, tmp_path: Path, region: str | None, signed_for: str
) -> None:
    with scripted_s3() as server:
        server.status = 403
        settings = {
            **site.wide.settings,
            **site.cluster.doors(),
            "broker.id": f"of-{signed_for}",
            "object_store.s3.bucket": "harvest",
            "object_store.s3.endpoint": server.endpoint,
            **({} if region is None else {"object_store.s3.region": region}),
        }
        broker = NodeProcess(tmp_path / "broker", settings, command=("broker",), environment=CREDENTIALS)
        try:
            broker.spawn()
            eventually(lambda: bool(server.seen), PATIENCE_S, "nothing was asked of the store", broker.log_text)
        finally:
            broker.kill()
        for each in server.seen:
            assert each.path.startswith("/harvest")
            assert f"/{signed_for}/s3/aws4_request" in each.authorization


@pytest.mark.requirement("R3.103", "R3.104", "R3.106", "R3.115")
def test_what_cannot_be_ends_the_process_and_is_named(tmp_path: Path) -> None:
    local = {"object_store.type": "local", "object_store.local.path": tmp_path / "objects"}
    wrong: dict[str, tuple[str, dict[str, object], str]] = {
        "missing": ("controller", {}, "node.id: required"),
        "misplaced": ("controller", {"node.id": "c", "listen.rpc": "9093"}, "listen.rpc: expected host:port"),
        "no-bucket": ("broker", {"object_store.type": "s3"}, "object_store.s3.bucket: required"),
        "no-store": ("broker", {"object_store.type": "ftp"}, "object_store.type: expected one of s3, gcs"),
        "too-small": ("broker", {**local, "wal.capacity.bytes": 12}, "wal.capacity.bytes: expected int >= "),
        "no-number": ("broker", {**local, "cache.read.size.bytes": "all"}, "cache.read.size.bytes: expected int"),
    }
    with ExitStack() as stack:
        nodes = {name: NodeProcess(tmp_path / name, given, command=(role,)) for name, (role, given, _) in wrong.items()}
        for node in nodes.values():
            node.spawn()
            stack.callback(node.kill)
        for name, (_, _, message) in wrong.items():
            process = nodes[name].process
            assert process is not None
            assert process.wait(PATIENCE_S) == 1
            assert message in nodes[name].log_text()
            assert not nodes[name].data_dir.exists()


@pytest.mark.requirement("R3.106", "R3.111")
def test_a_controller_keeps_its_office_in_the_etcd_it_was_told_of(tmp_path: Path) -> None:
    with etcd_servers() as etcd, cluster_processes(tmp_path, etcd) as cluster:
        cluster.start_controllers()
        eventually(lambda: cluster.active() is not None, PATIENCE_S, "no controller became active")

        async def office(store: EtcdMetastore) -> str:
            item = await store.get(keys.ACTIVE_CONTROLLER)
            return "" if item is None else values.decode(pb.ActiveController, item.value).controller_id

        assert cluster.ask(office, at=EtcdSettings(endpoints=tuple(etcd.endpoints))) == "c0"
