"""`wal` topics of three brokers on one machine, killed, paused and stopped: a neighbour takes over the WAL of whoever is gone."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.chaos.cluster.test_cluster_up import GAP_S, PARTITIONS, ClusterUp, await_fresh, kill, pause, stop
from tests.support.gap_page import noted
from tests.support.steady_producer import SteadyProducer

ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "10"))
QUIET = ("--set", "tier.upload.interval.ms=3600000")
"""Nothing is uploaded unless somebody asks for it: only the WALs have the records."""


@pytest.mark.slow
def test_a_killed_broker_is_replaced_by_its_neighbour_who_reads_its_wal(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster", *QUIET, durability="wal") as cluster:
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            await_fresh(producer, 0.0)
            killed = cluster.child("node-2")
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await_fresh(producer, time.monotonic())
            cluster.await_back("node-2", killed)
        producer.check(PARTITIONS)
        print(f"longest gap {producer.longest_gap_s:.2f} s")
        taken = [name for name in ("node-1", "node-3") if "partitions taken over" in cluster.log_of(name)]
        assert taken, "nobody took the WAL over"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("home", ["sqlite", "etcd"])
@pytest.mark.parametrize("fault", [kill, pause, stop])
def test_every_broker_in_turn_again_and_again(
    tmp_path: Path, home: str, fault: Callable[[ClusterUp, str], None]
) -> None:
    gaps = []
    with ClusterUp(tmp_path / "cluster", *QUIET, "--metastore", home, durability="wal") as cluster:
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            for number in range(ROUNDS):
                time.sleep(2.0)
                begun = time.monotonic()
                fault(cluster, f"node-{number % 3 + 1}")
                await_fresh(producer, time.monotonic())
                gaps.append(producer.gap_s(begun, time.monotonic()))
        producer.check(PARTITIONS)
    print(f"{fault.__name__} on {home}: {noted(f'{fault.__name__}, wal topics, {home}', gaps, bar_s=GAP_S)}")
    assert max(gaps) <= GAP_S


AWAY_S = 12.0
TAIL_BYTES = 256 << 20
HOARD = {
    "tier.upload.interval.ms": 3_600_000,
    "tier.upload.object.bytes": 512 << 20,
    "tier.upload.stream.bytes": 512 << 20,
    "tier.upload.waiting.bytes": 1 << 32,
    "wal.capacity.bytes": 2 << 30,
}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_tail_of_256_mib_is_taken_over_in_time(tmp_path: Path) -> None:
    with ClusterUp(tmp_path / "cluster", durability="wal", settings=HOARD) as cluster:
        sent = fill(cluster.kafka, 3 * TAIL_BYTES)
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            await_fresh(producer, 0.0)
            killed = cluster.child("node-2")
            assert killed is not None
            begun = time.monotonic()
            os.kill(killed, signal.SIGKILL)
            await_fresh(producer, begun + 0.5)
            gap_s = producer.gap_s(begun, time.monotonic())
        assert not producer.refused
        found = [line for name in ("node-1", "node-3") for line in cluster.log_of(name).splitlines()]
        taken = [line for line in found if "partitions taken over" in line]
        print(f"{sent >> 20} MiB in three WALs; {noted('kill, a WAL of 256 MiB', [gap_s], bar_s=GAP_S)}; {taken}")
        assert gap_s <= GAP_S


def fill(bootstrap: str, size: int) -> int:
    """So many bytes, spread over all partitions, in batches as busy producers send them."""
    # Never so much at once that producers are paused: then everything would be uploaded to make room.
    options = {"linger.ms": 20, "batch.size": 128 << 10, "acks": 1, "queue.buffering.max.kbytes": 16 << 10}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    value = os.urandom(16 << 10)
    for number in range(size // len(value)):
        while True:
            try:
                producer.produce("orders", value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return size


@pytest.mark.slow
def test_without_controllers_wal_topics_go_on(tmp_path: Path) -> None:
    """The only controller stands still for a while: nobody is asked when a record is acknowledged."""
    with ClusterUp(tmp_path / "cluster", *QUIET, durability="wal") as cluster:
        with SteadyProducer(cluster.kafka, "orders", partitions=PARTITIONS) as producer:
            await_fresh(producer, 0.0)
            controller = cluster.child("controller-1")
            assert controller is not None
            os.kill(controller, signal.SIGSTOP)
            begun = time.monotonic()
            time.sleep(AWAY_S)
            gap_s = producer.gap_s(begun + 1.0, time.monotonic())
            os.kill(controller, signal.SIGCONT)
            await_fresh(producer, time.monotonic())
        producer.check(PARTITIONS)
        print(f"longest gap {gap_s:.2f} s in {AWAY_S:.0f} s without controllers")
        assert gap_s <= GAP_S / 2
