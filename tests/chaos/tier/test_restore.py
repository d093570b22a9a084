"""WAL, metastore and name are lost; `tier restore` and the starts behind it are killed by kill -9 at every step."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import start_kills
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import S3Server, moto
from tests.support.outages import make_node, wait_uploaded
from tests.support.raw_kafka import LATEST, RawKafka, batch_of

from headrace.node.metastore import METASTORE_FILE

TOPIC = "t"
UPLOADED, ACKED = 100, 150
PATIENCE_S = 90.0
STRIDE = 7
"""Steps between two kills: `tests/unit/node/test_lead.py` stops at each of them, and a process takes a second to start."""
STEPS_MAX = 500
MakeNode = Callable[..., NodeProcess]


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeNode]:
    if request.param == "local":
        yield lambda **settings: NodeProcess(tmp_path / "data", {"tier.upload.interval.ms": 100, **settings})
        return
    with moto() as server:
        yield lambda **settings: _on_s3(tmp_path, server, settings)


def _on_s3(tmp_path: Path, server: S3Server, settings: dict[str, object]) -> NodeProcess:
    return make_node(tmp_path, server, **{"tier.upload.interval.ms": 100, **settings})


def test_a_restore_goes_on_above_everything_that_was_given_out(tmp_path: Path, make: MakeNode) -> None:
    node = lose_everything_but_the_bucket(make)
    assert run_restore(node, []) == 0
    try:
        node.start()
        verify(node)
    finally:
        node.kill()


@pytest.mark.slow
def test_no_kill_between_restore_and_first_acknowledgement_gives_an_offset_out_twice(
    tmp_path: Path, make: MakeNode
) -> None:
    """Each start is killed some steps later than the one before, and finds what that one has left."""
    node = lose_everything_but_the_bucket(make)
    armed = tmp_path / "armed"
    killed = [sys.executable, str(start_kills.__file__), str(armed)]
    try:
        for step in range(1, STEPS_MAX, STRIDE):
            armed.write_text(f"{step}")
            if run_restore(node, killed) != -signal.SIGKILL:
                break
        node.program = killed
        for step in range(1, STEPS_MAX, STRIDE):
            armed.write_text(f"{step}")
            node.spawn()
            eventually(lambda: is_up(node) or is_dead(node), PATIENCE_S, "neither up nor dead", node.log_text)
            if is_up(node):
                break
        assert step > 10, "the steps of a start are counted"
        node.kill()
        armed.unlink()
        node.start()
        verify(node)
    finally:
        node.kill()


def lose_everything_but_the_bucket(make: MakeNode) -> NodeProcess:
    """150 acknowledged, 100 of them uploaded and known to a snapshot."""
    node = make(**{"tier.snapshot.interval.ms": 100}).start()
    send(node, range(UPLOADED))
    wait_uploaded(node)
    time.sleep(2.0)  # Nothing shows when a snapshot is taken; `run_restore` looks whether one was.
    node.kill()
    node = make(**{"tier.upload.interval.ms": 3_600_000}).start()
    send(node, range(UPLOADED, ACKED))
    node.kill()
    shutil.rmtree(node.data_dir / "wal")
    for path in [*node.data_dir.glob(f"{METASTORE_FILE}*"), node.data_dir / "broker.id"]:
        path.unlink()
    return node


def send(node: NodeProcess, numbers: range) -> None:
    with RawKafka(node.kafka) as client:
        if not numbers.start:
            client.create_topic(TOPIC)
        for number in numbers:
            answer = client.produce(TOPIC, 0, batch_of([b"%d" % number]))
            assert (answer.error_code, answer.base_offset) == (0, number)


def run_restore(node: NodeProcess, program: list[str]) -> int:
    command = [*(program or [sys.executable, "-m", "headrace"]), "tier", "restore", "--json"]
    command += ["--data-dir", str(node.data_dir)]
    for key, value in node.settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (0, -signal.SIGKILL) or "the metastore is not empty" in done.stderr, done.stderr
    if not done.returncode:
        assert json.loads(done.stdout)["is_from_snapshot"], "the snapshot was not there yet"
    return done.returncode


def is_up(node: NodeProcess) -> bool:
    return (node.data_dir / "endpoints.json").exists()


def is_dead(node: NodeProcess) -> bool:
    assert node.process is not None
    code = node.process.poll()
    assert code in (None, -signal.SIGKILL), node.log_text()
    return code is not None


def verify(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        before = client.read_all(TOPIC, 0, may_miss=True)
        assert [record.value for record in before] == [b"%d" % number for number in range(UPLOADED)]
        answer = client.produce(TOPIC, 0, batch_of([b"after"]))
        assert answer.error_code == 0
        assert answer.base_offset >= ACKED, "an offset was given out twice"
        assert client.offset_at(TOPIC, 0, LATEST) == answer.base_offset + 1
        assert [record.value for record in client.read_all(TOPIC, 0, may_miss=True)][UPLOADED:] == [b"after"]
