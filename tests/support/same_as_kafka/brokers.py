"""A node and an Apache Kafka side by side, with settings that make their answers comparable."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.node import running_node

from headrace.bench.errors import RivalUnavailable
from headrace.bench.rivals import ApacheKafka

KAFKA_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "log.retention.hours": "",
    "log.segment.bytes": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "16",
    "transaction.state.log.num.partitions": "16",
}
"""As shipped, but for what would make answers wait or depend on the hour, and for numbers that headrace has otherwise."""
NODE_SETTINGS: Final = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0}

PASSWORD: Final = "secret"
LOGINS: Final = ("admin", "alice", "bob")
_JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{PASSWORD}" '
    + " ".join(f'user_{name}="{PASSWORD}"' for name in LOGINS)
    + ";"
)
KAFKA_LOGINS: Final = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
NODE_LOGINS: Final = {
    "security.authorization.enable": "true",
    "security.super.users": "User:admin",
    "security.plain.insecure": "true",
    "listener.kafka.sasl": "PLAIN",
}
"""Both ask for a login, and for rights of everybody but `admin`."""


@contextmanager
def both(path: Path, kafka_settings: Mapping[str, str], node_settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Addresses of a node and of an Apache Kafka."""
    try:
        kafka = ApacheKafka(settings=kafka_settings).launch(path / "kafka")
    except RivalUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be run here: {error}")
    try:
        with running_node(path / "data", node_settings) as node:
            if "listener.kafka.sasl" in node_settings:
                create_users(node.data_dir)
            yield node.kafka, kafka.bootstrap
    finally:
        kafka.stop()


def create_users(data_dir: Path) -> None:
    for name in LOGINS:
        command = [sys.executable, "-m", "headrace", "user", "create", name, "--local", str(data_dir)]
        subprocess.run(command, check=True, input=PASSWORD, text=True, capture_output=True)
