"""Kafka's own tools against a node that asks: users by kafka-configs, rules by kafka-acls, a Java client by SCRAM."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.java_kafka import VERSIONS, KafkaTools
from tests.support.node import NodeProcess, running_node

PASSWORD = "wood-and-water"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("java")
    (directory / "password").write_text(PASSWORD)
    settings = {"security.authorization.enable": "true", "listener.kafka.sasl": "SCRAM-SHA-256,SCRAM-SHA-512"}
    environment = {"HEADRACE_ADMIN_PASSWORD_FILE": str(directory / "password")}
    with running_node(directory / "data", settings, environment) as running:
        yield running


def properties(folder: Path, user: str, mechanism: str = "SCRAM-SHA-512") -> str:
    path = folder / f"{user}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{PASSWORD}";\n'
    )
    return str(path)


@pytest.mark.slow
def test_kafkas_tools_administer_users_and_rules(node: NodeProcess, tmp_path: Path) -> None:
    tools = KafkaTools(VERSIONS[-1])
    admin = ("--bootstrap-server", node.kafka, "--command-config", properties(tmp_path, "admin"))
    user = ("--entity-type", "users", "--entity-name", "alice")
    said = tools.run(
        "kafka-configs",
        *admin,
        "--alter",
        *user,
        "--add-config",
        f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]",
    )
    assert "Completed updating config for user alice" in said
    tools.run("kafka-topics", *admin, "--create", "--topic", "orders")
    tools.run("kafka-acls", *admin, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    listed = tools.run("kafka-acls", *admin, "--list", "--principal", "User:alice")
    assert "operation=WRITE, permissionType=ALLOW" in listed
    alice = properties(tmp_path, "alice", "SCRAM-SHA-256")
    tools.run(
        "kafka-console-producer",
        *("--bootstrap-server", node.kafka, "--topic", "orders", "--producer.config", alice),
        lines=["from java"],
    )
    read = subprocess.run(
        [sys.executable, "-m", "headrace", "consume", "orders", "-b", node.kafka, "--from-beginning", "--max", "1"],
        capture_output=True,
        text=True,
        env={**node.environment, "HEADRACE_CLIENT_CONFIG": librdkafka(tmp_path)},
    )
    assert read.stdout == "from java\n", read.stderr


@pytest.mark.slow
def test_kafkas_tools_administer_quotas(node: NodeProcess, tmp_path: Path) -> None:
    tools = KafkaTools(VERSIONS[-1])
    admin = ("--bootstrap-server", node.kafka, "--command-config", properties(tmp_path, "admin"))
    user = ("--entity-type", "users", "--entity-name", "slow")
    said = tools.run("kafka-configs", *admin, "--alter", *user, "--add-config", "producer_byte_rate=1024")
    assert "Completed updating config for user slow" in said
    assert "producer_byte_rate=1024" in tools.run("kafka-configs", *admin, "--describe", *user)
    command = [sys.executable, "-m", "headrace", "quota", "list", "--json", "--local", str(node.data_dir)]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert [(each["user"], each["produce"]) for each in listed] == [("slow", 1024.0)]
    tools.run("kafka-configs", *admin, "--alter", *user, "--delete-config", "producer_byte_rate")
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == []


def librdkafka(folder: Path) -> str:
    path = folder / "librdkafka.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=admin\nsasl.password={PASSWORD}\n"
    )
    return str(path)
