"""Random requests to Apache Kafka and to headrace: the answers are the same, field by field, but for a known list.

Each seed is a world of its own: topics, groups and producers that no other seed touches, and every version of every
request that both brokers announce, with values legal and illegal. `make same-as-kafka` runs it;
SAME_AS_KAFKA_SEEDS says how many seeds, and SAME_AS_KAFKA_SEED which one first.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.support.node import running_node
from tests.support.same_as_kafka.known import KNOWN, known_as
from tests.support.same_as_kafka.pairing import paired
from tests.support.same_as_kafka.running import common_kinds, run

from headrace.bench.errors import RivalUnavailable
from headrace.bench.rivals import ApacheKafka

SEEDS = int(os.environ.get("SAME_AS_KAFKA_SEEDS", "3"))
FIRST_SEED = int(os.environ.get("SAME_AS_KAFKA_SEED", "1"))
DOCUMENT = Path(__file__).parents[2] / "docs" / "protocols" / "kafka.md"

KAFKA_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.hours": "",
    "log.segment.bytes": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "16",
    "transaction.state.log.num.partitions": "16",
}
"""As shipped, but for what would make answers wait, and for numbers that headrace has otherwise."""
NODE_SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0}


@pytest.mark.long
def test_random_requests_are_answered_as_apache_kafka_answers_them(tmp_path: Path) -> None:
    try:
        kafka = ApacheKafka(settings=KAFKA_SETTINGS).launch(tmp_path / "kafka")
    except RivalUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be run here: {error}")
    try:
        with running_node(tmp_path / "data", NODE_SETTINGS) as node:
            unknown = [
                found
                for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)
                for found in _unknown_differences(node.kafka, kafka.bootstrap, seed)
            ]
    finally:
        kafka.stop()
    assert unknown == [], "\n".join(unknown)


def _unknown_differences(ours: str, theirs: str, seed: int) -> list[str]:
    unknown: list[str] = []
    counts: Counter[str] = Counter()
    with paired(ours, theirs) as pair:
        kinds = common_kinds(pair)
        for step in run(pair, seed, kinds):
            counts["steps"] += 1
            for found in step.differences:
                row = known_as(found, step.request)
                counts[row or "unknown"] += 1
                if row is None:
                    unknown.append(f"seed {seed}, step {step.number}: {found}\n  {step.request}"[:1500])
    print(f"seed {seed}: {dict(counts)}")
    assert counts["steps"] > 300, "most requests were not sent"
    return unknown


def test_what_is_known_to_differ_is_documented() -> None:
    rows = [line.removeprefix("| ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    undocumented = {known.row for known in KNOWN if not any(row.startswith(known.row) for row in rows)}
    assert undocumented == set()
