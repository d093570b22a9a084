"""Disks that lose power, fill up or rot. Mounting needs root and loop devices; without them these say so and skip."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.checker import History
from tests.support.disk_image import missing_for_mounts
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import Closed, RawKafka, batch_of
from tests.support.scenarios import (
    LAPS,
    PARTITIONS,
    PATIENCE_S,
    SMALL_RING,
    TOPIC,
    await_acks,
    start_node,
    survive_flipped_bits,
    survive_power_cuts,
    verify,
    whole_log,
)
from tests.support.workload import Load, until

from headrace.clients.errors import ServerError
from headrace.clients.rustlog import BlockingRustLogClient

needs_mounts = pytest.mark.skipif(missing_for_mounts() is not None, reason=missing_for_mounts() or "")
CUTS = 5
CUTS_LONG = 50
FLIPS = 8
TIMED_OUT = 7
NO_ROOM = "the log has no room"


@needs_mounts
@pytest.mark.requirement("R3.37", "R3.40", "X0.1")
def test_nothing_promised_is_lost_by_a_power_cut(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_power_cuts(tmp_path, kafka_address, seed, cuts=CUTS)


@needs_mounts
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.requirement("R3.37", "R3.40")
def test_nothing_promised_is_lost_by_fifty_power_cuts(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_power_cuts(tmp_path, kafka_address, seed, cuts=CUTS_LONG)


@needs_mounts
@pytest.mark.slow
@pytest.mark.requirement("R3.38")
def test_a_power_cut_while_a_small_ring_goes_round_loses_nothing(tmp_path: Path, kafka_address: str, seed: int) -> None:
    """What left the ring must be in the blob store, flushed, with the checkpoint and the metastore that say so."""
    survive_power_cuts(tmp_path, kafka_address, seed, cuts=CUTS, ring_bytes=SMALL_RING, acks=LAPS)


@pytest.mark.requirement("X0.1")
def test_rot_is_said_aloud_and_never_served(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_flipped_bits(tmp_path, kafka_address, seed, flips=FLIPS)


@needs_mounts
@pytest.mark.slow
@pytest.mark.requirement("R3.39")
def test_a_full_disk_stops_the_node_and_loses_nothing(tmp_path: Path, kafka_address: str, seed: int) -> None:
    """The ring is larger than its disk: the flush that finds no space fails its producers and ends the node."""
    wal = tmp_path / "wal"
    wal.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "headrace-test", str(wal)], check=True)
    history = History(seed)
    node: NodeProcess | None = None
    try:
        node = start_node(tmp_path / "data", kafka_address, settings={"wal.path": wal, "wal.capacity.bytes": 64 << 20})
        with Load(kafka_address, TOPIC, PARTITIONS, history) as load:
            await_acks(history, 100)
            _fill(kafka_address)
            assert until(lambda: node is not None and node.process is not None and node.process.poll() == 1, PATIENCE_S)
            assert "No space left" in whole_log(node)
        node.start()  # Still full: what was acknowledged can be read all the same.
        history.verify(kafka_address, load.places)
        history.check(node.log_text())
        node.kill()
        subprocess.run(["mount", "-o", "remount,size=200m", str(wal)], check=True)
        node.start()
        with Load(kafka_address, TOPIC, PARTITIONS, history, names="later") as load:
            await_acks(history, 100)
            verify(history, load, kafka_address, node)
    finally:
        if node is not None:
            node.kill()
        subprocess.run(["umount", str(wal)], check=True)


@needs_mounts
@pytest.mark.slow
@pytest.mark.requirement("R3.39", "R0.85")
@pytest.mark.trap(52)
def test_while_nothing_can_be_uploaded_a_full_ring_pauses_producers_and_keeps_everything(
    tmp_path: Path, kafka_address: str, seed: int
) -> None:
    """The object store has no space: producers wait and are told so, consumers read on, and all goes on when it has."""
    objects = tmp_path / "objects"
    objects.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "headrace-test", str(objects)], check=True)
    history = History(seed)
    settings = {
        "object_store.local.path": objects,
        "wal.capacity.bytes": SMALL_RING,
        "wal.spill.bytes": 0,
        "rustlog.handler.timeout.ms": 1_000,
    }
    node: NodeProcess | None = None
    try:
        node = start_node(tmp_path / "data", kafka_address, settings=settings)
        with Load(kafka_address, TOPIC, PARTITIONS, history) as load:
            _fill(kafka_address, timeout_ms=500)
            with RawKafka(kafka_address) as client:
                eventually(lambda: _has_no_room(client), PATIENCE_S, "there is always room", node.log_text)
            _is_refused_by_rustlog(node)
            verify(history, load, kafka_address, node)
            node.kill()
            # A start looks whether the store takes a few bytes; the records that wait would not fit.
            subprocess.run(["mount", "-o", "remount,size=1100k", str(objects)], check=True)
            node.start()
            verify(history, load, kafka_address, node)
            subprocess.run(["mount", "-o", "remount,size=200m", str(objects)], check=True)
            await_acks(history, 500)
            verify(history, load, kafka_address, node)
            with RawKafka(kafka_address) as client:
                assert client.produce(TOPIC, 0, batch_of([bytes(500_000)])).error_code == 0
        assert '"quarantined' not in whole_log(node)
    finally:
        if node is not None:
            node.kill()
        subprocess.run(["umount", str(objects)], check=True)


def _fill(address: str, timeout_ms: int = 10_000) -> None:
    """Large records until the node takes no more."""
    with contextlib.suppress(Closed), RawKafka(address) as client:
        client.create_topic("filler")
        while True:
            answer = client.produce("filler", 0, batch_of([bytes(500_000)]), timeout_ms=timeout_ms)
            if answer.error_code not in (0, TIMED_OUT) or answer.error_message == NO_ROOM:
                return


def _is_refused_by_rustlog(node: NodeProcess) -> None:
    """With the code for a full disk; and the connection goes on."""
    client = BlockingRustLogClient(node.endpoints["rustlog"])
    with pytest.raises(ServerError) as refused:
        client.produce(TOPIC, [bytes(500_000)])
    assert refused.value.code == 507
    assert client.fetch(TOPIC, offset=0, max_bytes=1_000).records
    client.close()


def _has_no_room(client: RawKafka) -> bool:
    """Asked again: what fits into the store may still leave the ring, and make room for a last record."""
    answer = client.produce(TOPIC, 0, batch_of([os.urandom(16) + bytes(500_000)]), timeout_ms=300)
    return (answer.error_code, answer.error_message) == (TIMED_OUT, NO_ROOM)
