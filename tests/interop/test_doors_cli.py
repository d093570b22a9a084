"""The command line through the doors that are not Kafka's."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.support.node import NodeProcess, eventually


def headrace(*arguments: str, text: str = "", code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.requirement("X0.3")
def test_topics_through_rustlog(node: NodeProcess) -> None:
    door = ("--door", "rustlog", "--address", node.endpoints["rustlog"])

    def ask(*arguments: str) -> Any:
        return json.loads(headrace("topic", *arguments, *door, "--json"))

    created = ask("create", "admin-topic", "--partitions", "2")
    assert created == {"topic": "admin-topic", "success": True, "partitions_created": 2}
    assert {"name": "admin-topic", "partition_count": 2} in ask("list")
    described = ask("describe", "admin-topic")
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    one = ask("describe", "admin-topic", "--partition", "1")
    assert (one["topic"], one["partition"], one["high_watermark"]) == ("admin-topic", 1, 0)
    assert "already exists" in headrace("topic", "create", "admin-topic", *door, code=1)
    assert "'nope' not found" in headrace("topic", "describe", "nope", *door, code=1)
    assert headrace("topic", "describe", "admin-topic", "--partition", "7", *door, code=1)
    assert "segment count" in headrace("topic", "describe", "admin-topic", *door)


@pytest.mark.requirement("X1.11")
def test_producing_and_consuming_through_mlog(node: NodeProcess) -> None:
    """Of several addresses one is enough. What a command is not told it takes from the environment."""
    mlog = ("--door", "mlog", "--address", f"127.0.0.1:1,{node.endpoints['mlog']}")
    headrace("topic", "create", "orders", HEADRACE_BOOTSTRAP=node.kafka)
    headrace("produce", "orders", *mlog, text="one\ntwo\nthree\n")
    assert headrace("consume", "orders", *mlog, "--from-beginning", "--no-follow") == "one\ntwo\nthree\n"
    assert headrace("consume", "orders", *mlog, "--offset", "1", "--max", "1") == "two\n"
    first = headrace("consume", "orders", *mlog, "--group", "id-7", "--from-beginning", "--max", "2")
    assert first == "one\ntwo\n"
    assert headrace("consume", "orders", *mlog, "--group", "id-7", "--no-follow") == "three\n"
    assert "orders" in headrace("topic", "list", "-b", node.kafka)
    headrace("topic", "delete", "orders", "-b", node.kafka)
    assert "not found" in headrace("produce", "orders", *mlog, text="x\n", code=1)


def test_producing_and_consuming_through_rustlog(node: NodeProcess) -> None:
    rustlog = ("--door", "rustlog", "--address", node.endpoints["rustlog"])
    headrace("topic", "create", "lines", *rustlog)
    headrace("produce", "lines", *rustlog, text="one\ntwo\n")
    assert headrace("consume", "lines", *rustlog, "--from-beginning", "--no-follow") == "one\ntwo\n"
    group = ("--group", "readers")
    assert headrace("consume", "lines", *rustlog, *group, "--from-beginning", "--max", "1") == "one\n"
    assert headrace("consume", "lines", *rustlog, *group, "--from-beginning", "--no-follow") == "two\n"


def test_producing_through_logjam_and_reading_it_back_through_kafka(node: NodeProcess) -> None:
    logjam = ("--door", "logjam", "--address", node.endpoints["logjam_router"])
    headrace("produce", "shop-test", *logjam, "--key-separator", "|", text='logs.cart|{"n":1}\nevents|{"n":2}\n')
    # A message is accepted before it is stored, and the topic made with the first of them.
    eventually(lambda: "logjam-shop-test" in headrace("topic", "list", "-b", node.kafka), 60, "no topic")
    kafka = ("-b", node.kafka, "--from-beginning", "--max", "2", "--format", "{key} {value}\n")
    shown = headrace("consume", "logjam-shop-test", *kafka)
    assert [line for line in shown.splitlines() if line] == ['logs.cart {"n":1}', 'events {"n":2}']
    assert "400" in headrace("produce", "nohyphen", *logjam, text="{}\n", code=1)
