"""`headrace group`, `config` and `transaction` against a running node, as an operator types them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.raw_groups import add_partitions, commit, init_transactions, join, sync
from tests.support.raw_kafka import Producer, RawKafka, batch_of

from headrace.broker.groups.embedded import write_assignment


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with running_node(tmp_path_factory.mktemp("node") / "data", settings) as started:
        with RawKafka(started.kafka) as client:
            client.create_topic("t", 2)
            for index in range(10):
                client.produce("t", 0, batch_of([b"%d" % index]))
        yield started


@pytest.fixture
def client(node: NodeProcess) -> Iterator[RawKafka]:
    with RawKafka(node.kafka) as connected:
        yield connected


def headrace(node: NodeProcess, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"HEADRACE_BOOTSTRAP": node.kafka},
    )
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if status == 0 else done.stderr


def answer(node: NodeProcess, *arguments: str) -> Any:  # Any: whatever the command answers
    return json.loads(headrace(node, *arguments, "--json"))


def offsets(node: NodeProcess, *arguments: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] for row in answer(node, "group", "reset", *arguments)}


def test_group_that_reads_a_deleted_topic_is_described(node: NodeProcess, client: RawKafka) -> None:
    client.create_topic("short-lived", 1)
    joined = join(client, "mourning")
    share = write_assignment([("short-lived", 0)], 1)
    sync(client, "mourning", joined.member_id, joined.generation_id, {joined.member_id: share})
    headrace(node, "topic", "delete", "short-lived")
    (row,) = answer(node, "group", "describe", "mourning")["partitions"]
    assert (row["topic"], row["end"], row["lag"], row["member"]) == ("short-lived", None, None, joined.member_id)
    assert headrace(node, "group", "reset", "mourning", "--topic", "short-lived", "--to-latest", status=1) == (
        "headrace: no topic 'short-lived'\n"
    )


def test_group_is_listed_described_and_deleted(node: NodeProcess, client: RawKafka) -> None:
    commit(client, "billing", "t", {0: 4})
    assert {"group": "billing", "state": "empty", "type": "classic"} in answer(node, "group", "list")
    found = answer(node, "group", "describe", "billing")
    assert [(each["committed"], each["end"], each["lag"]) for each in found["partitions"]] == [(4, 10, 6)]
    assert "billing" in headrace(node, "group", "describe", "billing")
    headrace(node, "group", "delete", "billing")
    assert "no group 'billing'" in headrace(node, "group", "describe", "billing", status=1)
    assert "no group 'billing'" in headrace(node, "group", "delete", "billing", status=1)


def test_reset_shows_first_and_then_moves(node: NodeProcess, client: RawKafka) -> None:
    """Partition 0 alone is looked at: other tests write into the other one."""
    commit(client, "moves", "t", {0: 4})
    assert offsets(node, "moves", "--to-earliest")[0] == 0
    assert answer(node, "group", "describe", "moves")["partitions"][0]["committed"] == 4
    assert offsets(node, "moves", "--to-latest", "--execute")[0] == 10
    assert offsets(node, "moves", "--shift", "-3", "--execute")[0] == 7
    assert offsets(node, "moves", "--to-offset", "99", "--topic", "t")[0] == 10
    assert offsets(node, "moves", "--to-time", "0001-01-01T00:00:00")[0] == 0
    assert offsets(node, "moves", "--to-time", "2001-01-01T00:00:00")[0] == 0
    assert offsets(node, "moves", "--to-time", "2199-01-01T00:00:00")[0] == 10
    assert answer(node, "group", "describe", "moves")["partitions"][0]["committed"] == 7
    assert "exactly one" in headrace(node, "group", "reset", "moves", status=1)
    assert "--topic" in headrace(node, "group", "reset", "fresh", "--to-latest", status=1)


def test_group_with_members_is_neither_moved_nor_deleted(node: NodeProcess, client: RawKafka) -> None:
    commit(client, "busy", "t", {0: 4})
    joined = join(client, "busy")
    sync(client, "busy", joined.member_id, joined.generation_id, {joined.member_id: b""})
    assert "stop them first" in headrace(node, "group", "reset", "busy", "--to-latest", "--execute", status=1)
    assert "stop them first" in headrace(node, "group", "delete", "busy", status=1)


def test_configs_are_shown_and_changed(node: NodeProcess) -> None:
    headrace(node, "config", "alter", "t", "--set", "retention.ms=5000")
    rows = answer(node, "config", "describe", "topic", "t", "--changed")
    assert rows == [{"key": "retention.ms", "value": "5000", "source": "topic"}]
    headrace(node, "config", "alter", "t", "--unset", "retention.ms")
    assert answer(node, "config", "describe", "topic", "t", "--changed") == []
    assert "no.such" in headrace(node, "config", "alter", "t", "--set", "no.such=1", status=1)
    headrace(node, "config", "alter", "t", "--unset", "segment.ms")
    assert "no.such" in headrace(node, "config", "alter", "t", "--unset", "no.such", status=1)
    broker = {row["key"]: row["value"] for row in answer(node, "config", "describe", "broker", "1")}
    assert broker["group.initial.rebalance.delay.ms"] == "0"


def test_hanging_transaction_is_found_and_aborted(node: NodeProcess, client: RawKafka) -> None:
    began = init_transactions(client, "hangs")
    producer = Producer(began.producer_id, began.producer_epoch)
    assert add_partitions(client, "hangs", producer, "t", [1]) == [0]
    [row] = answer(node, "transaction", "list", "--open")
    assert (row["transactional_id"], row["state"]) == ("hangs", "Ongoing")
    found = answer(node, "transaction", "describe", "hangs")
    assert (found["partitions"], found["epoch"]) == (["t-1"], 0)
    assert abs(found["started_ms"] - time.time() * 1000) < 600_000
    headrace(node, "transaction", "abort", "hangs")
    assert answer(node, "transaction", "list", "--open") == []
    assert "no transactional id" in headrace(node, "transaction", "abort", "nobody", status=1)
