"""The same rules for the same principal on Apache Kafka and on headrace: every request is answered with the same codes."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.access_probes import answers, log_in
from tests.support.node import running_node
from tests.support.raw_kafka import RawKafka

from headrace.bench.errors import RivalUnavailable
from headrace.bench.rivals import ApacheKafka
from headrace.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.kafka.messages.create_acls_response import CreateAclsResponse
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.delete_acls_response import DeleteAclsResponse
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_acls_response import DescribeAclsResponse

pytestmark = pytest.mark.long

PASSWORD = "secret"
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" '
    'user_admin="secret" user_alice="secret";'
)
KAFKA = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
HEADRACE = {
    "security.authorization.enable": "true",
    "security.super.users": "User:admin",
    "security.plain.insecure": "true",
    "listener.kafka.sasl": "PLAIN",
    "auto.create.topics.enable": "false",
}
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
OPERATIONS = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 6, 8),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTION: (2, 4, 8),
}
NAMES = {
    TOPIC: (("orders", LITERAL), ("ord", PREFIXED), ("*", LITERAL), ("other", LITERAL), ("missing", LITERAL)),
    GROUP: (("g", LITERAL), ("*", LITERAL), ("no", PREFIXED), ("h", LITERAL)),
    CLUSTER: (("kafka-cluster", LITERAL),),
    TRANSACTION: (("x", LITERAL), ("*", LITERAL)),
}
World = list[AclCreation]


def rule(kind: int, name: str, operation: int, permission: int = ALLOW, **more: Any) -> AclCreation:
    values = {"resource_pattern_type": LITERAL, "principal": "User:alice", "host": "*", **more}
    return AclCreation(
        resource_type=kind, resource_name=name, operation=operation, permission_type=permission, **values
    )


def worlds() -> Iterator[World]:
    yield []
    everything = [rule(kind, "kafka-cluster" if kind == CLUSTER else "*", 2) for kind in OPERATIONS]
    yield everything
    for kind, operations in OPERATIONS.items():
        for operation in operations:
            name, pattern = NAMES[kind][0]
            yield [rule(kind, name, operation, resource_pattern_type=pattern)]
            yield [*everything, rule(kind, name, operation, DENY, resource_pattern_type=pattern)]
    chance = random.Random(18)
    for _ in range(40):
        world = []
        for _ in range(chance.randint(1, 8)):
            kind = chance.choice(list(OPERATIONS))
            name, pattern = chance.choice(NAMES[kind])
            world.append(
                rule(
                    kind,
                    name,
                    chance.choice(OPERATIONS[kind]),
                    chance.choice((ALLOW, ALLOW, ALLOW, DENY)),
                    resource_pattern_type=pattern,
                    principal=chance.choice(("User:alice", "User:alice", "User:*", "User:bob")),
                    host=chance.choice(("*", "*", "127.0.0.1", "10.0.0.1")),
                )
            )
        yield world


def install(admin: RawKafka, world: World) -> None:
    gone = admin.call(
        DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3, DeleteAclsResponse
    ).filter_results[0]
    assert gone.error_code == 0, gone.error_message
    if world:
        made = admin.call(CreateAclsRequest(world), 3, CreateAclsResponse)
        assert {row.error_code for row in made.results} == {0}
    deadline = time.monotonic() + 30
    wanted = len({repr(each) for each in world})
    while True:
        shown = admin.call(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3, DescribeAclsResponse)
        if sum(len(row.acls) for row in shown.resources) == wanted:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def played(bootstrap: str) -> list[list[tuple[str, Any]]]:
    found = []
    with RawKafka(bootstrap, timeout=60) as admin, RawKafka(bootstrap, timeout=60) as alice:
        log_in(admin, "admin", PASSWORD)
        log_in(alice, "alice", PASSWORD)
        for topic in ("orders", "other"):
            admin.create_topic(topic)
        # Both coordinators make their topics when they are first asked for: that is not what is compared.
        install(admin, next(iter([[rule(GROUP, "*", 2), rule(TOPIC, "*", 2), rule(TRANSACTION, "*", 2)]])))
        warm(admin)
        for world in worlds():
            install(admin, world)
            found.append(answers(alice))
    return found


def warm(admin: RawKafka) -> None:
    deadline = time.monotonic() + 60
    while True:
        by_name = dict(answers(admin))
        if not any(code in repr(by_name) for code in ("'error_code': 15", "'error_code': 14")):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_every_request_is_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka(settings=KAFKA).launch(tmp_path / "kafka")
    except RivalUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be run here: {error}")
    try:
        theirs = played(kafka.bootstrap)
    finally:
        kafka.stop()
    with running_node(tmp_path / "data", HEADRACE) as node:
        for name in ("admin", "alice"):
            command = [sys.executable, "-m", "headrace", "user", "create", name, "--local", str(node.data_dir)]
            subprocess.run(command, check=True, input=PASSWORD, text=True, capture_output=True)
        ours = played(node.kafka)
    different = []
    for world, our, their in zip(worlds(), ours, theirs, strict=True):
        for (what, one), (also, other) in zip(our, their, strict=True):
            assert what == also
            if one != other and not is_known(what, one, other):
                different.append(f"{what} under {[repr(each) for each in world]}:\n  ours  {one}\n  Kafka {other}")
    assert different == [], f"{len(different)} differ:\n" + "\n".join(different[:40])
    assert len(ours) * len(ours[0]) > 4_000


def is_known(what: str, ours: Any, theirs: Any) -> bool:
    """What differs and has nothing to do with rights."""
    if what == "FetchRequest v12":
        # A replica that may fetch: Kafka does not know it, and we have none to know.
        codes = [row["partitions"][0]["error_code"] for row in ours["responses"]]
        return codes == [0] and theirs["responses"][0]["partitions"][0]["error_code"] == 6
    if what == "DescribeLogDirsRequest v4":
        # The bucket is a directory, too.
        return bool(ours["error_code"] == theirs["error_code"])
    if what == "OffsetDeleteRequest v0":
        # All topics are refused: Kafka asks its coordinator for none of them, which says that there is no such group.
        return ours["error_code"] == 0 and theirs["error_code"] == 69 and "'error_code': 0" not in repr(ours["topics"])
    return False
