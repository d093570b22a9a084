"""kill -9 while the object store has no space and the oldest records are being spilled, and starts with a spill."""

import subprocess
from pathlib import Path

import pytest
from tests.support.checker import History
from tests.support.disk_image import missing_for_mounts
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import RawKafka, batch_of
from tests.support.scenarios import PARTITIONS, TOPIC, await_acks, start_node, verify, whole_log
from tests.support.workload import Load

needs_mounts = pytest.mark.skipif(missing_for_mounts() is not None, reason=missing_for_mounts() or "")
MIB = 1024 * 1024
RING = 8 * MIB
KILLS = 1
KILLS_LONG = 10
SPILL_SECONDS_MAX = 120.0
WAIT_MS = 60_000
"""A record waits for room until the spill has made some."""


@needs_mounts
@pytest.mark.slow
@pytest.mark.requirement("R3.38")
def test_nothing_is_lost_by_kills_while_records_are_spilled(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_kills_while_spilling(tmp_path, kafka_address, seed, kills=KILLS)


@needs_mounts
@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_is_lost_by_many_kills_while_records_are_spilled(tmp_path: Path, kafka_address: str, seed: int) -> None:
    survive_kills_while_spilling(tmp_path, kafka_address, seed, kills=KILLS_LONG)


def survive_kills_while_spilling(tmp_path: Path, kafka_address: str, seed: int, *, kills: int) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "headrace-test", str(objects)], check=True)
    history = History(seed)
    settings = {
        "object_store.local.path": objects,
        "wal.capacity.bytes": RING,
        "wal.spill.bytes": 512 * MIB,
        "tier.upload.interval.ms": 100,
    }
    node: NodeProcess | None = None
    try:
        node = start_node(tmp_path / "data", kafka_address, settings=settings)
        spill = node.data_dir / "wal"
        with Load(kafka_address, TOPIC, PARTITIONS, history) as load:
            for _ in range(kills):
                _write_laps(kafka_address, spill)
                node.kill()
                node.start()
                verify(history, load, kafka_address, node)
            assert sum(path.stat().st_size for path in spill.glob("spill-*[0-9]")) > RING
            subprocess.run(["mount", "-o", "remount,size=1g", str(objects)], check=True)
            await_acks(history, 100)
            eventually(
                lambda: not list(spill.glob("spill-*")), SPILL_SECONDS_MAX, "the spill did not drain", node.log_text
            )
            verify(history, load, kafka_address, node)
        assert '"quarantined' not in whole_log(node)
    finally:
        if node is not None:
            node.kill()
        subprocess.run(["umount", str(objects)], check=True)


def _write_laps(address: str, spill: Path) -> None:
    """Large records, two rings full of them, and on until the next file appears: a spill is under way then."""
    known = set(spill.glob("spill-*"))
    with RawKafka(address, timeout=2 * WAIT_MS / 1000) as client:
        client.create_topic("filler")
        for number in range(10 * RING // 500_000):
            assert client.produce("filler", 0, batch_of([bytes(500_000)]), timeout_ms=WAIT_MS).error_code == 0
            if number > 2 * RING // 500_000 and set(spill.glob("spill-*")) - known:
                return
