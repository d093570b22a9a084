"""The same rules for the same principal on Apache Kafka and on headrace: every request is answered with the same codes."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.access_probes import answers, log_in
from tests.support.raw_kafka import RawKafka
from tests.support.same_as_kafka.brokers import (
    KAFKA_LOGINS,
    KAFKA_SETTINGS,
    NODE_LOGINS,
    NODE_SETTINGS,
    PASSWORD,
    both,
)
from tests.support.same_as_kafka.judging import judge
from tests.support.same_as_kafka.matrix import RuledStep, install, run_matrix
from tests.support.same_as_kafka.pairing import Broker, Pair, paired
from tests.support.same_as_kafka.running import Kind, Step, common_kinds, error_codes

from headrace.wire.kafka.messages.create_acls_request import AclCreation

SEEDS = int(os.environ.get("ACCESS_AS_KAFKA_SEEDS", "0"))
FIRST_SEED = int(os.environ.get("ACCESS_AS_KAFKA_SEED", "1"))
SAMPLE = 150
"""Steps of the sample: a fifth of a seed."""
TRAILS = Path(__file__).parents[2] / ".cache" / "access-as-kafka"
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
REFUSALS = frozenset((29, 30, 31, 53))
"""Errors that say that a right is missing."""
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


def played(bootstrap: str) -> list[list[tuple[str, Any]]]:
    found = []
    with RawKafka(bootstrap, timeout=60) as admin, RawKafka(bootstrap, timeout=60) as alice:
        log_in(admin, "admin", PASSWORD)
        log_in(alice, "alice", PASSWORD)
        keeper = Broker(bootstrap, is_ours=False, password=PASSWORD)
        for topic in ("orders", "other"):
            admin.create_topic(topic)
        # Both coordinators make their topics when they are first asked for: that is not what is compared.
        install(keeper, [rule(GROUP, "*", 2), rule(TOPIC, "*", 2), rule(TRANSACTION, "*", 2)])
        warm(admin)
        for world in worlds():
            install(keeper, world)
            found.append(answers(alice))
        keeper.close()
    return found


def warm(admin: RawKafka) -> None:
    deadline = time.monotonic() + 60
    while True:
        by_name = dict(answers(admin))
        if not any(code in repr(by_name) for code in ("'error_code': 15", "'error_code': 14")):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.long
def test_every_request_is_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    with both(tmp_path, KAFKA_SETTINGS | KAFKA_LOGINS, NODE_SETTINGS | NODE_LOGINS) as (ours_at, theirs_at):
        theirs, ours = played(theirs_at), played(ours_at)
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


@pytest.mark.slow
@pytest.mark.timeout(180 + 400 * SEEDS)
def test_random_requests_under_random_rules_are_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    """Every version of every request that both announce; a sample of them, unless ACCESS_AS_KAFKA_SEEDS says otherwise."""
    unknown: list[str] = []
    with both(tmp_path, KAFKA_SETTINGS | KAFKA_LOGINS, NODE_SETTINGS | NODE_LOGINS) as (ours, theirs):
        for seed in range(FIRST_SEED, FIRST_SEED + max(SEEDS, 1)):
            with paired(ours, theirs, PASSWORD) as pair:
                kinds = [*common_kinds(pair), *common_kinds(pair, is_about_rights=True)]
                unknown += unknown_differences(pair, seed, kinds)
    assert unknown == [], f"{len(unknown)} differ:\n" + "\n".join(unknown)


def unknown_differences(pair: Pair, seed: int, kinds: list[Kind]) -> list[str]:
    counts: Counter[str] = Counter()

    def steps() -> Iterator[tuple[Step, RuledStep]]:
        for ruled in run_matrix(pair, seed, kinds, steps_max=None if SEEDS else SAMPLE):
            counts["refused"] += any(code in REFUSALS for code in error_codes(ruled.step.theirs))
            yield ruled.step, ruled

    unknown = judge(pair, seed, steps(), TRAILS / f"{seed}.txt", counts)
    assert counts["refused"] > counts["steps"] / 10, "the rules hardly matter"
    return unknown
