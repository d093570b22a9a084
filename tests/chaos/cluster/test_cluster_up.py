"""`headrace cluster up`: processes that are started, kept running and stopped by one command."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.kafka_clients import Sent, read_confluent, write_confluent
from tests.support.node import NodeProcess, eventually
from tests.support.processes import children_of

PATIENCE_S = 90.0


@pytest.mark.slow
def test_a_child_that_dies_is_started_again_and_all_end_with_their_supervisor(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    up = NodeProcess(
        directory,
        {"default.durability": "object"},
        command=("cluster", "up", "--nodes", "1", "--ephemeral"),
    ).start()
    (kafka,) = json.loads((directory / "endpoints.json").read_text())["kafka"]
    write_confluent(kafka, "orders", [Sent(b"before")], "none")
    children = children_of(up.pid)
    assert len(children) == 2

    broker = next(child for child in children if b"broker" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"))
    os.kill(broker, signal.SIGKILL)
    eventually(
        lambda: len(set(children_of(up.pid)) - set(children)) == 1, PATIENCE_S, "nobody started it again", up.log_text
    )
    write_confluent(kafka, "orders", [Sent(b"after")], "none")
    assert [each.record.value for each in read_confluent(kafka, "orders", [0], 2)] == [b"before", b"after"]

    children = children_of(up.pid)
    assert up.stop() == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not (directory / "endpoints.json").exists()
