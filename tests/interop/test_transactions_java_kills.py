"""Java's transactional producer of Kafka 4, whose transactions have an epoch each (KIP-890), through kills of node and client."""

from pathlib import Path

import pytest
from tests.support.exactly_once import loop_under_kills
from tests.support.java import compile_java, java
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka

from headrace.bench import maven
from headrace.bench.errors import RivalUnavailable
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "java_programs" / "ExactlyOnce.java"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    try:
        lib = Path(maven.kafka_class_path(maven.KAFKA_NEWEST).removesuffix("/*"))
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    return java(lib, "ExactlyOnce", classes=compile_java(PROGRAM, lib, tmp_path / "classes"))


def epoch_of(node: NodeProcess, transactional_id: str) -> int:
    with RawKafka(node.kafka) as client:
        answer = client.call(DescribeTransactionsRequest([transactional_id]), 0, DescribeTransactionsResponse)
        return answer.transaction_states[0].producer_epoch


@pytest.mark.slow
def test_java_is_exactly_once_through_a_kill_of_the_node(tmp_path: Path, command: list[str]) -> None:
    with loop_under_kills(tmp_path, command, victim="node", kills=1) as loop:
        loop.check()
        # Twenty records at most in each transaction, and each raised the epoch: these were transactions of version 2.
        assert epoch_of(loop.node, "loop") >= len(loop.values) // 20


@pytest.mark.long
@pytest.mark.parametrize("victim", ["worker", "node"])
def test_java_is_exactly_once_through_many_kills(tmp_path: Path, command: list[str], victim: str) -> None:
    with loop_under_kills(tmp_path, command, victim=victim, kills=12) as loop:
        loop.check()
