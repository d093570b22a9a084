"""What the command line says over Kafka's protocol is what REST and gRPC say, over made-up histories."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.node import NodeProcess

from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages

MESSAGES = Messages()
TOPIC, GROUP = "told-thrice", "listeners"


class Three:
    """The same node through three doors."""

    def __init__(self, node: NodeProcess, api: httpx.Client, channel: Any) -> None:  # Any: grpc has no types
        self._node = node
        self.api = api
        self._channel = channel

    def cli(self, *arguments: str) -> Any:  # Any: JSON
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"HEADRACE_BOOTSTRAP": self._node.kafka},
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rest(self, path: str, **query: str) -> Any:  # Any: JSON
        return self.api.get(path, params=query).json()["data"]

    def grpc(self, name: str, /, **fields: Any) -> Any:  # Any: protobuf's own
        method = self._channel.unary_unary(
            f"/{PACKAGE}.{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES.of(f"{name}Response").FromString,
        )
        try:
            return method(json_format.ParseDict(fields, MESSAGES.of(f"{name}Request")()), timeout=60)
        except grpc.RpcError:
            return None


@pytest.fixture(scope="module")
def three(node: NodeProcess) -> Iterator[Three]:
    with (
        httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as api,
        grpc.insecure_channel(node.endpoints["grpc"]) as channel,
    ):
        yield Three(node, api, channel)


steps = st.one_of(
    st.tuples(st.just("create"), st.integers(1, 3)),
    st.tuples(st.just("grow"), st.integers(1, 4)),
    st.tuples(st.just("produce"), st.integers(0, 3)),
    st.tuples(st.just("configure"), st.integers(60_000, 60_002)),
    st.tuples(st.just("reset"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.just(0)),
)


def take(step: str, number: int, api: httpx.Client) -> None:
    """Whether it succeeds or not: every door must tell the same story afterwards."""
    match step:
        case "create":
            api.post("/topics", json={"name": TOPIC, "partitions": number})
        case "grow":
            api.post(f"/topics/{TOPIC}/partitions", json={"count": number})
        case "produce":
            api.post(f"/topics/{TOPIC}/records", json={"partition": number, "value": {"data": "x"}})
        case "configure":
            api.patch(f"/topics/{TOPIC}/configs", json={"set": {"retention.ms": str(number)}})
        case "reset":
            api.post(f"/groups/{GROUP}/reset", json={"target": "offset", "value": number, "topics": [TOPIC]})
        case _:
            api.delete(f"/topics/{TOPIC}")


@settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(history=st.lists(steps, min_size=4, max_size=10).map(lambda drawn: [("create", 2), *drawn]))
def test_three_doors_tell_the_same_story(three: Three, history: list[tuple[str, int]]) -> None:
    three.api.delete(f"/topics/{TOPIC}")
    three.api.delete(f"/groups/{GROUP}")
    for step, number in history:
        take(step, number, three.api)
    assert topic_by_rest(three) == topic_by_grpc(three) == topic_by_cli(three), history
    assert group_by_rest(three) == group_by_grpc(three) == group_by_cli(three), history


Story = tuple[list[tuple[Any, ...]], dict[str, str]] | None  # Any: numbers and names
"""Partitions with their leader, start and end, and what is configured; None where there is no such topic or group."""


def topic_by_rest(three: Three) -> Story:
    topic = three.rest(f"/topics/{TOPIC}")
    if topic is None:
        return None
    rows = three.rest(f"/topics/{TOPIC}/partitions")["partitions"]
    return [(row["partition"], row["leader"], row["log_start"], row["high_watermark"]) for row in rows], topic["config"]


def topic_by_grpc(three: Three) -> Story:
    topic = three.grpc("DescribeTopic", name=TOPIC)
    if topic is None:
        return None
    rows = three.grpc("ListPartitions", name=TOPIC).partitions
    return [(row.partition, row.leader, row.log_start, row.high_watermark) for row in rows], dict(topic.config)


def topic_by_cli(three: Three) -> Story:
    topic = three.cli("topic", "describe", TOPIC)
    if topic is None:
        return None
    rows = topic["partitions"]
    return [(row["partition"], row["leader"], row["log_start"], row["end"]) for row in rows], topic["config"]


def group_by_rest(three: Three) -> Story:
    group = three.rest(f"/groups/{GROUP}")
    if group is None:
        return None
    rows = group["partitions"]
    return [(row["topic"], row["partition"], row["committed"], row["lag"]) for row in rows], {
        "state": group["state"].lower()
    }


def group_by_grpc(three: Three) -> Story:
    group = three.grpc("DescribeGroup", group=GROUP)
    if group is None:
        return None
    rows = group.partitions
    return [(row.topic, row.partition, row.committed, row.lag) for row in rows], {"state": group.state.lower()}


def group_by_cli(three: Three) -> Story:
    group = three.cli("group", "describe", GROUP)
    if group is None:
        return None
    rows = group["partitions"]
    return [(row["topic"], row["partition"], row["committed"], row["lag"]) for row in rows], {"state": group["state"]}


def test_the_command_line_makes_lists_and_removes_users_over_rest(node: NodeProcess, name: str) -> None:
    """No Kafka door is asked: the one named is nobody's."""

    def run(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", "user", *arguments, "--api", f"http://{node.endpoints['admin']}"]
        return subprocess.run(
            [*command, "--bootstrap", "127.0.0.1:1"],
            input=said,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    made = run("create", name, said="a password\n")
    assert made.returncode == 0, made.stderr
    assert "already" in run("create", name, said="a password\n").stderr
    shown = json.loads(run("list", "--json").stdout)
    assert [row["mechanisms"] for row in shown if row["user"] == name] == [["SCRAM-SHA-256", "SCRAM-SHA-512"]]
    assert run("password", name, said="another\n").returncode == 0
    assert run("delete", name).returncode == 0
    assert run("delete", name).returncode == 1
