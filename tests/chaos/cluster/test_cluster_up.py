"""`headrace cluster up`: one command, and an idempotent producer that goes on while its processes are killed, paused and stopped."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.gap_page import noted
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import BUCKET, seaweedfs
from tests.support.processes import arguments_of, children_of
from tests.support.steady_producer import SteadyProducer

PATIENCE_S = 90.0
PARTITIONS = 6
SETTLE_S = 2.0
"""Under load between two faults."""
GAP_S = 5.0
ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "3"))


class ClusterUp:
    def __init__(
        self,
        directory: Path,
        *arguments: str,
        durability: str = "object",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._config = {"durability": durability}
        command = ("cluster", "up", "--nodes", "3", "--ephemeral", *arguments)
        self.directory = directory
        self.process = NodeProcess(directory, settings, command=command)

    def __enter__(self) -> "ClusterUp":
        self.process.start()
        self.kafka = ",".join(json.loads((self.directory / "endpoints.json").read_text())["kafka"])
        admin = AdminClient({"bootstrap.servers": self.kafka})
        for created in admin.create_topics([NewTopic("orders", PARTITIONS, 1, config=self._config)]).values():
            created.result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.process is not None and self.process.process.poll() is None:
            children = children_of(self.process.pid)
            self.process.kill()
            eventually(lambda: not any(map(arguments_of, children)), PATIENCE_S, "children outlive their supervisor")

    def child(self, name: str) -> int | None:
        """The process of a node, a controller or a member of the etcd."""
        for child in children_of(self.process.pid):
            if any(each == name or f"/{name}/" in each for each in arguments_of(child)):
                return child
        return None

    def log_of(self, name: str) -> str:
        return (self.directory / "logs" / f"{name}.log").read_text()

    def brokers_online(self) -> dict[str, bool]:
        """As the controller tells administrators."""
        address = json.loads((self.directory / "controller-1" / "endpoints.json").read_text())["http"]
        rows = httpx.get(f"http://{address}/api/v1/brokers", timeout=PATIENCE_S).json()["data"]["brokers"]
        return {row["id"]: row["online"] for row in rows}

    def await_back(self, name: str, former: int) -> None:
        """Another process has its name, and serves."""
        ready = self.directory / name / "endpoints.json"
        eventually(
            lambda: self.child(name) not in (None, former) and ready.exists(),
            PATIENCE_S,
            f"{name} was not started again",
            self.process.log_text,
        )


@pytest.mark.slow
@pytest.mark.requirement("R3.9", "R3.13", "R3.14", "R3.15", "R3.20", "R3.57", "R3.59", "R3.60")
def test_a_killed_broker_costs_nobody_a_record_and_is_started_again(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster") as cluster:
        assert cluster.brokers_online() == {"node-1": True, "node-2": True, "node-3": True}
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            killed = cluster.child("node-2")
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            cluster.await_back("node-2", killed)
        producer.check(PARTITIONS)
        children = children_of(cluster.process.pid)
        assert cluster.process.stop() == 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)
        assert not (cluster.directory / "endpoints.json").exists()


def await_fresh(producer: SteadyProducer, since: float) -> None:
    eventually(lambda: producer.is_fresh(since), PATIENCE_S, "a partition acknowledges nothing")


def kill(cluster: ClusterUp, name: str) -> None:
    process = cluster.child(name)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    cluster.await_back(name, process)


def pause(cluster: ClusterUp, name: str) -> None:
    process = cluster.child(name)
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    time.sleep(4)
    os.kill(process, signal.SIGCONT)


def stop(cluster: ClusterUp, name: str) -> None:
    process = cluster.child(name)
    assert process is not None
    os.kill(process, signal.SIGTERM)
    cluster.await_back(name, process)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.requirement("R3.13", "R3.16", "R3.56", "R3.57", "R3.59", "R3.60", "R3.61")
@pytest.mark.parametrize("home", ["sqlite", "etcd"])
@pytest.mark.parametrize("fault", [kill, pause, stop])
def test_every_broker_in_turn(tmp_path: Path, home: str, fault: Callable[[ClusterUp, str], None]) -> None:
    with ClusterUp(tmp_path / "cluster", "--metastore", home) as cluster:
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            for name in ("node-1", "node-2", "node-3"):
                time.sleep(SETTLE_S)
                fault(cluster, name)
            time.sleep(SETTLE_S)
        producer.check(PARTITIONS)
        told = noted(f"{fault.__name__} of each broker in turn, {home}", [producer.longest_gap_s], bar_s=GAP_S)
        print(f"{fault.__name__} on {home}: {told}")
        assert producer.longest_gap_s <= GAP_S


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.requirement("R3.16", "R3.30")
def test_every_controller_and_etcd_member_in_turn(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster", "--metastore", "etcd") as cluster:
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            for kind in ("controller", "etcd"):
                for number in (1, 2, 3):
                    process = cluster.child(f"{kind}-{number}")
                    assert process is not None
                    os.kill(process, signal.SIGKILL)
                    time.sleep(8)
        producer.check(PARTITIONS)
        print(noted("kill of each controller and etcd member in turn", [producer.longest_gap_s], bar_s=GAP_S))
        assert producer.longest_gap_s <= GAP_S
        for number in (1, 2, 3):
            assert "incarnation is over" not in cluster.log_of(f"node-{number}")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_object_store_that_is_killed(tmp_path: Path) -> None:
    """Nothing is acknowledged while it is away, and nothing is lost."""
    with seaweedfs() as store:
        where = {
            "object_store.type": "s3",
            "object_store.s3.bucket": BUCKET,
            "object_store.s3.region": "us-east-1",
            "object_store.s3.endpoint": store.endpoint,
        }
        settings = [each for key, value in where.items() for each in ("--set", f"{key}={value}")]
        with ClusterUp(tmp_path / "cluster", *settings) as cluster:
            waits = []
            with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
                for _ in range(ROUNDS):
                    time.sleep(SETTLE_S)
                    store.stop()
                    time.sleep(4)
                    store.start()
                    back = time.monotonic()
                    await_fresh(producer, back)
                    waits.append(time.monotonic() - back)
            producer.check(PARTITIONS)
            print(f"after the store was back: {noted('SeaweedFS killed: from its return on', waits)}")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("home", ["sqlite", "etcd"])
def test_the_time_to_the_first_acknowledged_record(tmp_path: Path, home: str) -> None:
    times = []
    for number in range(3):
        begun = time.monotonic()
        with (
            ClusterUp(tmp_path / f"cluster-{number}", "--metastore", home) as cluster,
            SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer,
        ):
            await_fresh(producer, 0.0)
            times.append(time.monotonic() - begun)
    print(f"first acknowledged record on {home}: {', '.join(f'{each:.1f} s' for each in times)}")
