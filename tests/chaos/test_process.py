"""The process as an operator meets it: stopped with SIGTERM, paused, started twice, on a broken or full disk."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.checker import History
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import LATEST, Closed, RawKafka, batch_of
from tests.support.scenarios import await_acks, mutant, survive_failed_flush, survive_fence, verify, whole_log
from tests.support.workload import Load

TOPIC = "chaos"
PARTITIONS = 3


def make_topic(address: str) -> None:
    with RawKafka(address) as client:
        client.create_topic(TOPIC, PARTITIONS)


@pytest.mark.slow
@pytest.mark.requirement("R4.64")
def test_sigterm_under_load_exits_zero_and_keeps_every_acknowledgement(
    tmp_path: Path, kafka_address: str, seed: int
) -> None:
    node = NodeProcess(tmp_path / "data", {"listen.kafka": kafka_address}).start()
    history = History(seed)
    make_topic(kafka_address)
    try:
        with Load(kafka_address, TOPIC, PARTITIONS, history) as load:
            for _ in range(3):
                await_acks(history, 300)
                assert node.stop() == 0, node.log_text()
                node.start()
                verify(history, load, kafka_address, node)
        assert '"clean":true' in whole_log(node).replace(" ", "")
    finally:
        node.kill()


def test_a_stop_answers_what_is_on_its_way_to_the_disk(tmp_path: Path) -> None:
    """A producer that is not idempotent cannot repeat what it sent: it should be told."""
    node = NodeProcess(tmp_path / "data").start()
    with RawKafka(node.kafka) as client:
        client.create_topic(TOPIC)
        client.produce(TOPIC, 0, batch_of([b"first"]))
        sent = [client.send_produce(TOPIC, 0, batch_of([b"%d" % number])) for number in range(50)]
        answered = [client.read_produced(sent[0]).base_offset]
        assert node.stop() == 0
        with contextlib.suppress(Closed):
            for each in sent[1:]:
                answered.append(client.read_produced(each).base_offset)
        assert client.is_closed_by_peer()
    node.start()
    try:
        with RawKafka(node.kafka) as client:
            kept = client.offset_at(TOPIC, 0, LATEST)
            values = [record.value for record in client.read_all(TOPIC, 0)]
            assert values == [b"first"] + [b"%d" % number for number in range(kept - 1)]
            assert answered == list(range(1, kept))
    finally:
        node.kill()


def test_sigterm_leaves_nothing_that_only_the_disk_has(tmp_path: Path) -> None:
    """The disk of a pod goes with it: `wal` topics survive a clean stop without their WAL."""
    node = NodeProcess(tmp_path / "data", {"tier.upload.interval.ms": 3_600_000}).start()
    try:
        with RawKafka(node.kafka) as client:
            client.create_topic(TOPIC)
            for number in range(20):
                client.produce(TOPIC, 0, batch_of([b"%d" % number]))
        assert node.stop() == 0, node.log_text()
        assert "object storage has everything" in whole_log(node)
        shutil.rmtree(node.data_dir / "wal")
        node.start()
        with RawKafka(node.kafka) as client:
            found = [each.value for each in client.read_all(TOPIC, 0, may_miss=True)]
            assert found == [b"%d" % number for number in range(20)]
    finally:
        node.kill()


@pytest.mark.slow
@pytest.mark.requirement("R3.40")
def test_a_pause_of_seconds_loses_nothing(tmp_path: Path, kafka_address: str, seed: int) -> None:
    """SIGSTOP: clients time out, reconnect, repeat; whatever the node then wakes up to, nothing is lost or doubled."""
    node = NodeProcess(tmp_path / "data", {"listen.kafka": kafka_address}).start()
    history = History(seed)
    make_topic(kafka_address)
    try:
        with Load(kafka_address, TOPIC, PARTITIONS, history) as load:
            for pause in (0.3, 6.0):  # The second is longer than the clients' patience.
                await_acks(history, 100)
                node.process_signal(signal.SIGSTOP)
                time.sleep(pause)
                node.process_signal(signal.SIGCONT)
                await_acks(history, 100)
                verify(history, load, kafka_address, node)
            node.kill()
            node.start()
            history.verify(kafka_address, load.places)
        history.check(node.log_text())
    finally:
        node.kill()


def test_sighup_changes_nothing(tmp_path: Path) -> None:
    """Log rotation sends it, and so does a terminal that is closed."""
    with running_node(tmp_path / "data") as node, RawKafka(node.kafka) as client:
        client.create_topic("t")
        node.process_signal(signal.SIGHUP)
        eventually(lambda: "SIGHUP changes nothing" in node.log_text(), 60, "the signal was not taken", node.log_text)
        assert client.produce("t", 0, batch_of([b"x"])).error_code == 0
        assert node.stop() == 0


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data").start()
    try:
        second = subprocess.run(
            [sys.executable, "-m", "headrace", "up", "--ephemeral", "--no-pipeline", "--data-dir", str(node.data_dir)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert second.returncode == 1
        said = second.stdout + second.stderr
        assert f"in use by process {node.pid}" in said, said
        assert "Traceback" not in said
        with RawKafka(node.kafka) as client:
            assert client.api_versions().error_code == 0
    finally:
        node.kill()


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.requirement("R3.37")
def test_after_a_failed_flush_the_node_stops_and_a_new_start_has_every_acknowledged_record(
    tmp_path: Path, kafka_address: str, seed: int, error: str
) -> None:
    survive_failed_flush(tmp_path, kafka_address, seed, program=mutant(f"flush-fails:{error}:60"))


def test_a_fenced_owner_acknowledges_nothing_that_the_taker_cannot_read(
    tmp_path: Path, kafka_address: str, seed: int
) -> None:
    survive_fence(tmp_path, kafka_address, seed)
