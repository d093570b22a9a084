"""Brokers that are killed, paused and stopped, and controllers that are killed: real processes, real clients, SQLite and etcd."""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster import ClusterProcesses, cluster_processes
from tests.support.etcd import etcd_servers
from tests.support.kafka_clients import Sent, read_confluent, write_confluent
from tests.support.node import NodeProcess, eventually

from headrace.clients import BlockingMlogClient
from headrace.clock import SystemClock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.etcd.store import EtcdMetastore
from headrace.control.metastore import only
from headrace.control.plans import Fence
from headrace.errors import StaleEpoch
from headrace.ids import BrokerEpoch

PATIENCE_S = 60.0
TAKEOVER_S = 5.0
LEASE_S = 66.0
"""From the last heartbeat that controllers heard until a WAL may be given up."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Of each test its own: what one leaves behind, a broker that still leads something, changes what another finds."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    with cluster_processes(directory) as processes:
        processes.start_controllers()
        yield processes


def create_topic(broker: NodeProcess, name: str, durability: str = "object") -> None:
    topic = NewTopic(name, 3, 1, config={"durability": durability})
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    for created in admin.create_topics([topic]).values():
        created.result(PATIENCE_S)


def await_state(cluster: ClusterProcesses, name: str, state: int | None) -> pb.BrokerRegistration | None:
    def is_there() -> bool:
        found = cluster.registration(name)
        return (None if found is None else found.state) == state

    eventually(is_there, PATIENCE_S, f"{name} did not become {state}", cluster.brokers[name].log_text)
    return cluster.registration(name)


@pytest.mark.slow
@pytest.mark.requirement("R3.13", "R3.19", "R3.56", "R3.61", "R3.64")
def test_a_paused_broker_is_fenced_commits_nothing_more_and_comes_back(cluster: ClusterProcesses) -> None:
    broker = cluster.start_broker("paused")
    registration = await_state(cluster, "paused", pb.ACTIVE)
    assert registration is not None
    create_topic(broker, "orders")
    write_confluent(broker.kafka, "orders", [Sent(b"before")], "none")
    former = cluster.ask(lambda store: fence_of(store, registration))

    broker.process_signal(signal.SIGSTOP)
    await_state(cluster, "paused", pb.FENCED)
    cluster.ask(lambda store: expect_refused(store, former))
    broker.process_signal(signal.SIGCONT)

    again = await_state(cluster, "paused", pb.ACTIVE)
    assert again is not None
    assert again.broker_epoch > registration.broker_epoch + 1
    assert again.numeric_id == registration.numeric_id
    broker.await_up()  # Controllers know it a moment sooner than it knows itself.
    write_confluent(broker.kafka, "orders", [Sent(b"after")], "none")
    seen = read_confluent(broker.kafka, "orders", [0], 2)
    assert [each.record.value for each in seen] == [b"before", b"after"]
    assert broker.stop() == 0
    assert cluster.registration("paused") is None, "it said that it is gone"


async def fence_of(store: EtcdMetastore, registration: pb.BrokerRegistration) -> Fence:
    """What every transaction of this incarnation compares."""
    item = await store.get(keys.broker_identity("paused"))
    assert item is not None
    return Fence("paused", BrokerEpoch(registration.broker_epoch), item.mod_revision)


async def expect_refused(store: EtcdMetastore, former: Fence) -> None:
    late = await Cluster.load(store, SystemClock())
    late.enter(former)
    with pytest.raises(StaleEpoch):
        await late.raise_ceilings({("orders", 0): 1_000_000})


@pytest.mark.slow
@pytest.mark.requirement("R3.56")
def test_a_killed_broker_is_fenced(cluster: ClusterProcesses) -> None:
    broker = cluster.start_broker("killed")
    await_state(cluster, "killed", pb.ACTIVE)
    broker.kill()
    await_state(cluster, "killed", pb.FENCED)


@pytest.mark.slow
@pytest.mark.requirement("R3.7", "R3.8", "R3.9", "R3.13", "R3.15", "R3.16", "R3.45", "R3.57", "R3.58", "R3.60")
def test_a_dead_broker_is_described_and_forgotten_and_one_that_serves_is_not(cluster: ClusterProcesses) -> None:
    """What it led is led by one that has just joined, with everything that was acknowledged and nothing copied."""
    dead = cluster.start_broker("dead")
    await_state(cluster, "dead", pb.ACTIVE)
    create_topic(dead, "inherited")
    write_confluent(dead.kafka, "inherited", [Sent(b"before")], "none")
    assert cluster.ask(segment_states) == [pb.IN_OBJECT_STORE], "acknowledged, so its controller has it in the bucket"
    before = cluster.ask(revision_now)
    heir = cluster.start_broker("heir")
    await_state(cluster, "heir", pb.ACTIVE)
    assert "broker heir is ACTIVE" in headrace(cluster, "remove-node", "heir", status=1)
    dead.kill()
    await_state(cluster, "dead", pb.FENCED)
    assert "dead is forgotten" in headrace(cluster, "remove-node", "dead")
    assert "no broker 'dead'" in headrace(cluster, "remove-node", "dead", status=1)

    def described() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(headrace(cluster, "describe", "--json"))
        return found

    eventually(lambda: described()["without_leader"] == 0, PATIENCE_S, "partitions stay without a leader")
    found = described()
    assert [each["name"] for each in found["controllers"] if each["is_active"]] == ["c0"]
    assert {each["name"]: each["state"] for each in found["brokers"]}["heir"] == "ACTIVE"
    assert "dead" not in {each["name"] for each in found["brokers"]}
    moves = cluster.ask(lambda store: leaders_since(store, before))
    assert [name for name, _ in moves] == sorted(name for name, _ in moves), (
        "from the dead one to its heir, and not back"
    )
    assert {name for name, _ in moves} <= {"dead", "heir"}
    epochs = {epoch: name for name, epoch in moves}
    assert set(epochs.items()) == {(epoch, name) for name, epoch in moves}, "no two brokers have led in one epoch"
    write_confluent(heir.kafka, "inherited", [Sent(b"after")], "none")
    seen = read_confluent(heir.kafka, "inherited", [0], 2)
    assert [each.record.value for each in seen] == [b"before", b"after"]
    heir.stop()


async def segment_states(store: EtcdMetastore) -> list[int]:
    """Of the records in the first partition: the row behind the last of them says that the rest is to come."""
    found = await store.range(keys.segments("inherited", 0))
    segments = [values.decode(pb.Segment, item.value) for item in found.items]
    return [each.status for each in segments if each.end_offset]


async def revision_now(store: EtcdMetastore) -> int:
    return (await store.range(keys.BROKERS)).revision


async def leaders_since(store: EtcdMetastore, revision: int) -> list[tuple[str, int]]:
    """Who was written down as the leader of the first partition, under which epoch, in the order of the revisions."""
    now = await revision_now(store)
    path = keys.leader("inherited", 0)
    found = []
    async for changes in store.watch(only(path), from_revision=revision + 1):
        for event in changes.events:
            assert event.value is not None
            leader = values.decode(pb.PartitionLeader, event.value)
            found.append((leader.broker_id, leader.leader_epoch))
        if changes.revision >= now:
            break
    return found


@pytest.mark.slow
@pytest.mark.requirement("R3.94")
def test_a_name_is_taken_while_its_broker_is_heard(cluster: ClusterProcesses) -> None:
    first = cluster.start_broker("twin")
    await_state(cluster, "twin", pb.ACTIVE)
    second = NodeProcess(first.data_dir.with_name("other"), {**first.settings, **cluster.doors()}, command=("broker",))
    second.spawn()
    assert second.process is not None
    assert second.process.wait(PATIENCE_S) == 1
    assert "broker.id must be unique" in second.log_text()
    await_state(cluster, "twin", pb.ACTIVE)
    first.stop()


@pytest.mark.slow
@pytest.mark.requirement("X1.8")
def test_the_health_of_a_node_is_shown_with_its_topics_and_to_administrators(cluster: ClusterProcesses) -> None:
    """While nobody can read the WAL of the one that died, its topic waits, and is not shown as being in sync."""
    looking, failing = cluster.start_broker("looking"), cluster.start_broker("failing")
    await_state(cluster, "failing", pb.ACTIVE)
    # Of brokers that lead equally little, the first by name leads it.
    topic = NewTopic("kept", 1, 1, config={"durability": "wal"})
    admin = AdminClient({"bootstrap.servers": looking.kafka})
    admin.create_topics([topic])["kept"].result(PATIENCE_S)
    write_confluent(failing.kafka, "kept", [Sent(b"only there")], "none")
    await_health(looking, is_healthy=True)

    wal, away = failing.data_dir / "wal", failing.data_dir / "away"
    controller = cluster.controllers[0]
    controller.process_signal(signal.SIGSTOP)
    failing.kill()
    wal.rename(away)
    controller.process_signal(signal.SIGCONT)
    await_state(cluster, "failing", pb.FENCED)
    await_health(looking, is_healthy=False)

    away.rename(wal)
    failing.start()
    await_health(looking, is_healthy=True)


def await_health(looking: NodeProcess, *, is_healthy: bool) -> None:
    """What one broker says of the other and of the topic that it led, through mlog's door and the admin API."""

    def is_shown() -> bool:
        with BlockingMlogClient([looking.endpoints["mlog"]]) as client:
            replicas = [each.Replicas[0] for each in client.list_topics() if each.Name == "kept"]
        address = f"http://{looking.endpoints['admin']}/api/v1/brokers"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            online = {row["id"]: row["online"] for row in json.loads(answer.read())["data"]["brokers"]}
        return [each.IsISR for each in replicas] == [is_healthy] and online == {
            "looking": True,
            "failing": is_healthy,
        }

    eventually(is_shown, PATIENCE_S, f"the other broker is not shown as healthy={is_healthy}", looking.log_text)


def headrace(cluster: ClusterProcesses, command: str, *arguments: str, status: int = 0) -> str:
    """What `headrace cluster COMMAND` says of this cluster, through its controllers."""
    where = ("--controllers", *cluster.controller_endpoints)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "cluster", command, *arguments, *where],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_broker_keeps_on_while_its_only_controller_restarts(cluster: ClusterProcesses) -> None:
    broker = cluster.start_broker("patient")
    await_state(cluster, "patient", pb.ACTIVE)
    create_topic(broker, "kept")
    cluster.controllers[0].kill()
    cluster.controllers[0].start()
    eventually(lambda: cluster.active() is not None, PATIENCE_S, "no controller became active")
    write_confluent(broker.kafka, "kept", [Sent(b"v")], "none")
    await_state(cluster, "patient", pb.ACTIVE)
    broker.stop()


@pytest.mark.long
@pytest.mark.requirement("R3.16", "R3.30")
def test_another_controller_is_active_within_seconds_of_a_kill(tmp_path: Path) -> None:
    """Three controllers on an etcd of three members. Brokers notice nothing, and are still watched afterwards."""
    with etcd_servers(3) as etcd, cluster_processes(tmp_path, etcd) as cluster:
        cluster.start_controllers(3)
        eventually(lambda: cluster.active() is not None, PATIENCE_S, "no controller became active")
        broker = cluster.start_broker("b1")
        registration = await_state(cluster, "b1", pb.ACTIVE)
        create_topic(broker, "orders")
        for _ in range(3):
            active = cluster.active()
            assert active is not None
            active.kill()
            begun = time.monotonic()
            eventually(lambda: cluster.active() is not None, PATIENCE_S, "no other controller became active")
            assert time.monotonic() - begun < TAKEOVER_S
            active.start()
            write_confluent(broker.kafka, "orders", [Sent(b"v")], "none")
        etcd.members[0].kill()
        write_confluent(broker.kafka, "orders", [Sent(b"v")], "none")
        assert cluster.registration("b1") == registration, "the same incarnation all along"
        broker.kill()
        await_state(cluster, "b1", pb.FENCED)


@pytest.mark.slow
def test_a_wal_on_a_volume_that_was_moved_is_adopted_by_command(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Its neighbour does not find it where it was; told where it is now, it leads what is in it."""
    gone = cluster.start_broker("gone")
    await_state(cluster, "gone", pb.ACTIVE)
    create_topic(gone, "kept", "wal")
    write_confluent(gone.kafka, "kept", [Sent(b"before")], "none")
    gone.kill()
    await_state(cluster, "gone", pb.FENCED)
    volume = tmp_path / "volume"
    (gone.data_dir / "wal").rename(volume)
    heir = cluster.start_broker("heir")
    await_state(cluster, "heir", pb.ACTIVE)
    assert "newest records of 3 partitions" in headrace(cluster, "remove-node", "gone", status=1)
    assert "may still acknowledge" in headrace(cluster, "give-up-wal", "gone", "--accept-loss", status=1)
    told = adopt_wal(cluster, heir, volume, "gone")
    assert "3 partitions that were in the WAL of gone are led by heir" in told
    write_confluent(heir.kafka, "kept", [Sent(b"after")], "none")
    seen = read_confluent(heir.kafka, "kept", [0], 2)
    assert [each.record.value for each in seen] == [b"before", b"after"]
    heir.stop()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_wal_that_is_lost_is_given_up_once_its_owner_can_acknowledge_nothing(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """Its partitions go on at another broker, above every offset that may have been given out; the owner comes back with nothing."""
    gone = cluster.start_broker("gone", {"tier.upload.interval.ms": 3_600_000})
    await_state(cluster, "gone", pb.ACTIVE)
    create_topic(gone, "kept", "wal")
    write_confluent(gone.kafka, "kept", [Sent(b"lost")], "none")
    gone.kill()
    begun = time.monotonic()
    await_state(cluster, "gone", pb.FENCED)
    shutil.rmtree(gone.data_dir)
    heir = cluster.start_broker("heir")
    await_state(cluster, "heir", pb.ACTIVE)
    where = ("--controllers", *cluster.controller_endpoints)
    command = [sys.executable, "-m", "headrace", "cluster", "give-up-wal", "gone", *where]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert refused.returncode != 0, "who does not say --accept-loss is asked to"
    assert "may still acknowledge" in headrace(cluster, "give-up-wal", "gone", "--accept-loss", status=1)
    while True:
        done = subprocess.run([*command, "--accept-loss"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        assert "may still acknowledge" in done.stdout + done.stderr
        assert time.monotonic() - begun < LEASE_S + PATIENCE_S
        time.sleep(2)
    assert time.monotonic() - begun >= LEASE_S
    write_confluent(heir.kafka, "kept", [Sent(b"after")], "none")
    (seen,) = read_confluent(heir.kafka, "kept", [0], 1)
    assert seen.record.value == b"after"
    assert seen.offset > 0, "an offset that was acknowledged is never another record's"
    gone.start()
    await_state(cluster, "gone", pb.ACTIVE)
    assert [each.record.value for each in read_confluent(gone.kafka, "kept", [0], 1)] == [b"after"]
    gone.stop()
    heir.stop()


def adopt_wal(cluster: ClusterProcesses, taker: NodeProcess, volume: Path, owner: str) -> str:
    """What `headrace broker adopt` says on the machine of `taker`."""
    where = [f"controller.endpoints={','.join(cluster.controller_endpoints)}", f"broker.id={taker.data_dir.name}"]
    settings = [*where, "security.open=true", "object_store.type=local"]
    options = ["--data-dir", str(taker.data_dir), *(each for setting in settings for each in ("--set", setting))]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "broker", "adopt", "--wal", str(volume), "--of", owner, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
