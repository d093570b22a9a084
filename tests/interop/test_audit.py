"""The audit of a node: what it keeps, who may read it, and that nobody can write to it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.test_login import SETTINGS, authenticate, handshake, headrace, logged_in
from tests.support import kafka_messages
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode

PASSWORD_THAT_IS_WRONG = "tulips in december"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {**SETTINGS, "security.audit.enable": "true"}
    with running_node(tmp_path_factory.mktemp("audit") / "data", settings) as running:
        for name in ("alice", "bob"):
            headrace(running, "user", "create", name)
        headrace(running, "acl", "allow", "alice", "all", "*", "--group", "*")
        yield running


def events(node: NodeProcess) -> list[dict[str, Any]]:  # Any: whatever JSON has
    shown = headrace(node, "audit", "tail", "--from-beginning", "--no-follow", "--json")
    return [json.loads(line) for line in shown.splitlines()]


def has(node: NodeProcess, kind: str, **data: str) -> bool:
    return any(event["type"] == f"headrace.{kind}" and data.items() <= event["data"].items() for event in events(node))


def test_changes_and_refusals_are_kept(node: NodeProcess) -> None:
    with logged_in(node, "bob") as bob, logged_in(node, "alice") as alice:
        alice.create_topic("orders")
        refused = bob.produce("orders", 0, batch_of([b"v"])).error_code
        assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert bob.produce("__headrace_audit", 0, batch_of([b"v"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        # Not even somebody who may do everything to all topics writes to it.
        assert alice.produce("__headrace_audit", 0, batch_of([b"v"])).error_code != 0
    with RawKafka(node.kafka) as stranger:
        handshake(stranger, "PLAIN")
        authenticate(stranger, f"\0alice\0{PASSWORD_THAT_IS_WRONG}".encode())
    owner = {"principal": "Owner:local"}
    for kind, data in (
        ("access.changed", {**owner, "change": "user created", "user": "alice"}),
        ("access.changed", {**owner, "change": "rule added"}),
        ("access.allowed", {"principal": "User:alice", "operation": "CREATE", "name": "orders", "host": "127.0.0.1"}),
        ("access.denied", {"principal": "User:bob", "operation": "WRITE", "name": "orders", "host": "127.0.0.1"}),
        ("access.denied", {"principal": "User:bob", "operation": "WRITE", "name": "__headrace_audit"}),
        ("login.refused", {"listener": "kafka", "host": "127.0.0.1"}),
    ):
        eventually(lambda kind=kind, data=data: has(node, kind, **data), 60, f"no event {kind} {data}")  # type: ignore[misc]
    assert PASSWORD_THAT_IS_WRONG not in json.dumps(events(node))


def test_changes_by_kafka_requests_are_kept_with_what_was_before_and_after(node: NodeProcess) -> None:
    m = kafka_messages.module_of
    records, grow, alter = m("DeleteRecordsRequest"), m("CreatePartitionsRequest"), m("IncrementalAlterConfigsRequest")
    commit, forget = m("OffsetCommitRequest"), m("OffsetDeleteRequest")
    retention = [alter.AlterConfigsResource(2, "parcels", [alter.AlterableConfig("retention.ms", 0, "60000")])]
    place = [forget.OffsetDeleteRequestTopic("parcels", [forget.OffsetDeleteRequestPartition(0)])]
    offset = [commit.OffsetCommitRequestTopic("parcels", partitions=[commit.OffsetCommitRequestPartition(0, 1)])]
    first = [records.DeleteRecordsTopic("parcels", [records.DeleteRecordsPartition(0, 1)])]
    headrace(node, "user", "create", "carla", "--super")
    with logged_in(node, "carla") as carla:
        carla.create_topic("parcels")
        carla.produce("parcels", 0, batch_of([b"1", b"2"]))
        find = m("FindCoordinatorRequest").FindCoordinatorRequest("carriers", 0)
        answer = kafka_messages.class_of("FindCoordinatorResponse")
        eventually(lambda: not carla.call(find, 2, answer).error_code, 60, "nobody looks after the group")  # type: ignore[attr-defined]
        for request, version in (
            (grow.CreatePartitionsRequest([grow.CreatePartitionsTopic("parcels", 3)], 10_000, False), 3),
            (grow.CreatePartitionsRequest([grow.CreatePartitionsTopic("parcels", 2)], 10_000, False), 3),
            (alter.IncrementalAlterConfigsRequest(retention, True), 1),
            (alter.IncrementalAlterConfigsRequest(retention), 1),
            (records.DeleteRecordsRequest(first, 10_000), 2),
            (commit.OffsetCommitRequest("carriers", topics=offset), 8),
            (forget.OffsetDeleteRequest("carriers", place), 0),
            (commit.OffsetCommitRequest("carriers", topics=offset), 8),
            (m("DeleteGroupsRequest").DeleteGroupsRequest(["carriers"]), 2),
            (m("DeleteTopicsRequest").DeleteTopicsRequest(topic_names=["parcels"], timeout_ms=10_000), 5),
        ):
            carla.call(request, version, kafka_messages.class_of(type(request).__name__.replace("quest", "sponse")))
    changes = [each["data"] for each in events(node) if each["type"] == "headrace.admin.changed"]
    told = [each for each in changes if {"parcels", "carriers"} & set(each["request"].values())]
    topic = {"id": told[0]["after"]["id"], "partitions": 1, "config": {}}
    grown = {**topic, "partitions": 3, "config": {"retention.ms": "60000"}}
    assert [(each["change"], each["before"], each["after"]) for each in told] == [
        ("CreateTopic", None, topic),
        ("GrowTopic", 1, 3),  # And not what was refused, nor what was only for show.
        ("UpdateTopicConfig", {}, {"retention.ms": "60000"}),
        ("DeleteRecords", 0, 1),
        ("DeleteOffset", 1, None),
        ("DeleteGroup", {"parcels-0": 1}, {}),
        ("DeleteTopic", grown, None),
    ]
    assert {(each["principal"], each["host"]) for each in told} == {("User:carla", "127.0.0.1")}
    assert told[4]["request"] == {"group": "carriers", "topic": "parcels", "partition": "0"}


def test_people_read_it_as_lines(node: NodeProcess) -> None:
    shown = headrace(node, "audit", "tail", "--from-beginning", "--max", "1")
    assert "access.allowed" in shown
    assert "Owner:local" in shown


def test_reading_it_is_a_right(node: NodeProcess, tmp_path: Path) -> None:
    config = tmp_path / "bob.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=bob\n"
        "sasl.password=correct horse, battery=staple\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "audit", "tail", "--no-follow", "-b", node.kafka],
        capture_output=True,
        text=True,
        env={**node.environment, "HEADRACE_CLIENT_CONFIG": str(config)},
    )
    assert done.returncode != 0
    assert "no audit that you may read" in done.stderr or "not allowed" in done.stderr


@pytest.mark.slow
def test_events_outlive_a_restart(tmp_path: Path) -> None:
    settings = {**SETTINGS, "security.audit.enable": "true"}
    for name in ("alice", "bob"):
        with running_node(tmp_path / "data", settings) as node:
            headrace(node, "user", "create", name)
            eventually(lambda name=name: has(node, "access.changed", user=name), 60, "not kept")  # type: ignore[misc]
    with running_node(tmp_path / "data", settings) as node:
        assert has(node, "access.changed", user="alice")
        assert has(node, "access.changed", user="bob")
