"""kill -9 between a commit, its manifest in the bucket, and the moment at which the metastore forgets it."""

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import kill_points
from tests.support.checker import History
from tests.support.kill_points import COMMITTED, FORGETTING, FORGOTTEN, WRITTEN
from tests.support.node import SMALL_WAL, NodeProcess
from tests.support.raw_kafka import Closed, RawKafka, batch_of
from tests.support.tier_node import read_bucket

from headrace.blob.local import LocalBlobStore
from headrace.records.record import Record
from headrace.tier.format import keys

TOPIC = "t"
PATIENCE_S = 60.0
SENT_MAX = 500
"""Each is a commit of its own; sixteen manifests are forgotten together."""


@pytest.mark.slow
@pytest.mark.requirement("R3.119")
def test_no_commit_is_lost_between_its_manifest_and_the_moment_it_is_forgotten(
    tmp_path: Path, kafka_address: str, seed: int
) -> None:
    """The bucket alone has every record after each start, and what it had before stays as it was."""
    history = History(seed)
    bucket, armed = tmp_path / "data" / "objects", tmp_path / "armed"
    program = [sys.executable, str(kill_points.__file__), str(armed)]
    settings = {"listen.kafka": kafka_address, "tier.upload.interval.ms": 3_600_000}
    node = NodeProcess(tmp_path / "data", settings, program=program).start()
    try:
        with RawKafka(kafka_address) as client:
            client.create_topic(TOPIC, configs={"durability": "object"})
        for place in (f"{COMMITTED}:3", f"{FORGETTING}:1", f"{FORGOTTEN}:1"):
            armed.write_text(place)
            send_until_killed(node, kafka_address, history)
            before = manifests(bucket)
            if place.startswith(FORGETTING):
                die_while_starting(node, armed)
            armed.unlink()
            node.start()
            assert manifests(bucket).items() >= before.items()
            verify(history, kafka_address, bucket, node)
        node.kill()
        restore(bucket, tmp_path / "restored")
        node = NodeProcess(tmp_path / "restored", settings).start()
        assert manifests(tmp_path / "restored" / "objects").items() >= manifests(bucket).items()
        verify(history, kafka_address, tmp_path / "restored" / "objects", node)
    finally:
        node.kill()


def send_until_killed(node: NodeProcess, address: str, history: History) -> None:
    try:
        with RawKafka(address) as client:
            for _ in range(SENT_MAX):
                value = b"%d after %d" % (history.acked_count, node.pid)
                answer = client.produce(TOPIC, 0, batch_of([value]))
                assert answer.error_code == 0, answer
                history.note_acked(TOPIC, 0, answer.base_offset, [value])
    except Closed:
        await_kill(node)
    else:
        raise AssertionError(f"the node still lives\n{node.log_text()}")


def die_while_starting(node: NodeProcess, armed: Path) -> None:
    """In the midst of writing, once more, what the metastore still holds."""
    armed.write_text(f"{WRITTEN}:2")
    node.spawn()
    await_kill(node)


def await_kill(node: NodeProcess) -> None:
    assert node.process is not None
    assert node.process.wait(PATIENCE_S) == -signal.SIGKILL, node.log_text()


def verify(history: History, address: str, bucket: Path, node: NodeProcess) -> None:
    with RawKafka(address) as client:
        # A restored log goes on far above its last record.
        served = client.read_all(TOPIC, 0, may_miss=True)
    for records in (served, asyncio.run(records_in(bucket))):
        history.compare_below((TOPIC, 0), sys.maxsize, records)
    history.check(node.log_text())


async def records_in(bucket: Path) -> list[Record]:
    blobs = LocalBlobStore(bucket)
    try:
        return await read_bucket(blobs, TOPIC, 0)
    finally:
        await blobs.close()


def manifests(bucket: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (bucket / keys.MANIFESTS).iterdir()}


def restore(bucket: Path, data_dir: Path) -> None:
    """A new node's directory, from a copy of the bucket alone."""
    shutil.copytree(bucket, data_dir / "objects")
    command = [sys.executable, "-m", "headrace", "cluster", "restore", "--data-dir", str(data_dir)]
    command += ["--set", f"wal.capacity.bytes={SMALL_WAL}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
