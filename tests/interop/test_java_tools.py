"""Apache Kafka's own tools, of the last version 3 and the newest 4, against a real node.

The first four are the commands of the seed's test section. Skipped, with the reason, where Java or Maven is missing.
"""

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.java import compile_java, java
from tests.support.java_kafka import PATIENT_ADMIN, VERSIONS, KafkaTools
from tests.support.node import NodeProcess, eventually

from headrace.bench import maven

JAVA_PROGRAMS = Path(__file__).resolve().parents[1] / "support" / "java_programs"

pytestmark = pytest.mark.xdist_group("java_tools")


@pytest.fixture(params=[pytest.param(VERSIONS[0], marks=pytest.mark.slow), *VERSIONS[1:]], scope="module")
def tools(request: pytest.FixtureRequest) -> KafkaTools:
    return KafkaTools(request.param)


@pytest.fixture
def topic(node: NodeProcess, tools: KafkaTools) -> str:
    name = f"java-{uuid.uuid4().hex[:8]}"
    tools.run("kafka-topics", "--bootstrap-server", node.kafka, "--create", "--topic", name, "--partitions", "2")
    return name


@pytest.mark.requirement("R4.66")
def test_broker_api_versions_lists_every_api(node: NodeProcess, tools: KafkaTools, tmp_path: Path) -> None:
    patience = tmp_path / "patience.properties"
    patience.write_text(PATIENT_ADMIN)
    server = ("--bootstrap-server", node.kafka)
    printed = tools.run("kafka-broker-api-versions", *server, "--command-config", str(patience))
    assert f"{node.kafka} (id: " in printed
    for api in ("Produce(0): 0 to 13", "Fetch(1)", "Metadata(3)", "ApiVersions(18)", "DescribeTopicPartitions(75): 0"):
        assert api in printed
    # What the tool cannot use together with us it marks so; of the APIs any client needs, none may be.
    needed = [line for line in printed.splitlines() if line.strip().startswith(("Produce(", "Fetch(", "Metadata("))]
    assert not any("UNSUPPORTED" in line or "UNUSABLE" in line for line in needed)


@pytest.mark.requirement("R4.67")
def test_topics_describes_a_topic(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    printed = tools.run("kafka-topics", "--bootstrap-server", node.kafka, "--describe", "--topic", topic)
    found_id = printed.split("TopicId: ", 1)[1].split()[0]
    by_id = tools.run("kafka-topics", "--bootstrap-server", node.kafka, "--describe", "--topic-id", found_id)
    assert f"Topic: {topic}" in by_id
    head, *partitions = printed.strip().splitlines()
    assert f"Topic: {topic}" in head
    assert "PartitionCount: 2" in head
    assert [f"Partition: {index}" in line for index, line in enumerate(partitions)] == [True, True]
    assert all("Leader: 1" in line for line in partitions)


@pytest.mark.requirement("R4.68", "R4.69")
def test_console_consumer_shows_what_the_console_producer_sent(
    node: NodeProcess, tools: KafkaTools, topic: str
) -> None:
    sent = [f"line {index} äöü" for index in range(20)]
    tools.run("kafka-console-producer", "--bootstrap-server", node.kafka, "--topic", topic, lines=sent)
    with tools.running(
        "kafka-console-consumer", "--bootstrap-server", node.kafka, "--topic", topic, "--from-beginning"
    ) as consumer:
        shown = consumer.wait_for(lambda lines: len(lines) >= len(sent))
    assert sorted(shown) == sorted(sent)


def test_topics_lists_alters_and_deletes(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    server = ("--bootstrap-server", node.kafka)
    assert topic in tools.run("kafka-topics", *server, "--list").split()
    tools.run("kafka-topics", *server, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in tools.run("kafka-topics", *server, "--describe", "--topic", topic)
    tools.run("kafka-topics", *server, "--delete", "--topic", topic)
    assert topic not in tools.run("kafka-topics", *server, "--list").split()


def test_consumer_groups_show_and_move_offsets(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    server, group = ("--bootstrap-server", node.kafka), f"group-{topic}"
    tools.run("kafka-console-producer", *server, "--topic", topic, lines=[str(index) for index in range(10)])
    tools.run(
        "kafka-console-consumer",
        *server,
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10"),
    )
    assert group in tools.run("kafka-consumer-groups", *server, "--list").split()
    described = _group_rows(tools.run("kafka-consumer-groups", *server, "--describe", "--group", group))
    assert sum(int(row["LAG"]) for row in described) == 0
    assert sum(int(row["LOG-END-OFFSET"]) for row in described) == 10
    assert "Empty" in tools.run("kafka-consumer-groups", *server, "--describe", "--state", "--group", group)
    tools.run(
        "kafka-consumer-groups",
        *server,
        *("--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute"),
    )
    described = _group_rows(tools.run("kafka-consumer-groups", *server, "--describe", "--group", group))
    assert sum(int(row["LAG"]) for row in described) == 10
    deleted = tools.run("kafka-consumer-groups", *server, "--delete-offsets", "--group", group, "--topic", topic)
    assert "Successful" in deleted
    tools.run("kafka-consumer-groups", *server, "--delete", "--group", group)
    assert group not in tools.run("kafka-consumer-groups", *server, "--list").split()


def test_configs_change_and_show_a_topic(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    entity = ("--bootstrap-server", node.kafka, "--entity-type", "topics", "--entity-name", topic)
    tools.run("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=123456")
    assert "retention.ms=123456" in tools.run("kafka-configs", *entity, "--describe")
    tools.run("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=123456" not in tools.run("kafka-configs", *entity, "--describe")


def test_get_offsets_follow_delete_records(
    node: NodeProcess, tools: KafkaTools, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = ("--bootstrap-server", node.kafka)
    tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "100", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={node.kafka}"),
    )
    ends = _offsets(tools.run("kafka-get-offsets", *server, "--topic", topic))
    assert sum(ends.values()) == 100
    partition, end = max(ends.items(), key=lambda item: item[1])
    wanted = tmp_path_factory.mktemp("delete") / "records.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition, "offset": end - 1}]})
    )
    tools.run("kafka-delete-records", *server, "--offset-json-file", str(wanted))
    starts = _offsets(tools.run("kafka-get-offsets", *server, "--topic", topic, "--time", "-2"))
    assert starts[partition] == end - 1


def test_transactions_lists_nothing_on_a_quiet_node(node: NodeProcess, tools: KafkaTools) -> None:
    printed = tools.run("kafka-transactions", "--bootstrap-server", node.kafka, "list")
    assert printed.split()[:1] == ["TransactionalId"]


def test_transactional_perf_test_shows_in_transactions(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    transactional_id = f"perf-{topic}"
    tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={node.kafka}"),
    )

    def is_complete() -> bool:
        """A commit is answered when it is decided; it is complete with its last marker."""
        arguments = ("--bootstrap-server", node.kafka, "describe", "--transactional-id", transactional_id)
        return "CompleteCommit" in tools.run("kafka-transactions", *arguments)

    assert transactional_id in tools.run("kafka-transactions", "--bootstrap-server", node.kafka, "list")
    eventually(is_complete, 60, "the last transaction is not complete")
    shown = tools.run(
        "kafka-console-consumer",
        *("--bootstrap-server", node.kafka, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", "2000", "--timeout-ms", "120000"),
    )
    assert len(shown.splitlines()) == 2000


def test_perf_tests_produce_and_consume(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    produced = tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={node.kafka}", "compression.type=lz4"),
    )
    assert "5000 records sent" in produced
    consumed = tools.run(
        "kafka-consumer-perf-test",
        *("--bootstrap-server", node.kafka, "--topic", topic, "--messages", "5000", "--timeout", "120000"),
    )
    assert any("5000" in line.split(", ") for line in consumed.splitlines())


def test_verifiable_consumer_gets_what_the_verifiable_producer_was_acknowledged(
    node: NodeProcess, tools: KafkaTools, topic: str
) -> None:
    printed = tools.run(
        "kafka-verifiable-producer",
        *("--bootstrap-server", node.kafka, "--topic", topic, "--max-messages", "500", "--acks", "-1"),
    )
    events = [json.loads(line) for line in printed.splitlines()]
    acknowledged = sorted(int(event["value"]) for event in events if event["name"] == "producer_send_success")
    assert acknowledged == list(range(500))
    with tools.running(
        "kafka-verifiable-consumer",
        *("--bootstrap-server", node.kafka, "--topic", topic, "--group-id", f"verify-{topic}"),
        *("--max-messages", "500", "--reset-policy", "earliest", "--verbose"),
    ) as consumer:
        lines = consumer.wait_for(lambda lines: sum('"record_data"' in line for line in lines) >= 500)
    events = [json.loads(line) for line in lines]
    assert sorted(int(event["value"]) for event in events if event["name"] == "record_data") == acknowledged


@pytest.mark.long
def test_what_operators_look_at(node: NodeProcess, tools: KafkaTools, topic: str) -> None:
    server = ("--bootstrap-server", node.kafka)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "default.replication.factor=1" in tools.run("kafka-configs", *server, *broker, "--describe", "--all")
    assert topic in tools.run("kafka-log-dirs", *server, "--describe")
    tools.run("kafka-leader-election", *server, "--all-topic-partitions", "--election-type", "preferred")
    tools.run("kafka-transactions", *server, "describe-producers", "--topic", topic, "--partition", "0")
    tools.run("kafka-transactions", *server, "find-hanging", "--broker-id", "1")


def _group_rows(printed: str) -> list[dict[str, str]]:
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    header = next(line for line in lines if line[0] == "GROUP")
    return [dict(zip(header, line, strict=False)) for line in lines[lines.index(header) + 1 :]]


def _offsets(printed: str) -> dict[int, int]:
    rows = [line.rsplit(":", 2) for line in printed.split()]
    return {int(partition): int(offset) for _, partition, offset in rows}


def test_the_newest_consumer_reads_by_a_pattern_that_the_broker_resolves(
    node: NodeProcess, tools: KafkaTools, tmp_path: Path
) -> None:
    """It is told topic ids only, and asks Metadata for their names."""
    if tools.version != maven.KAFKA_NEWEST:
        pytest.skip("patterns of this kind came with version 4")
    lib = Path(maven.kafka_class_path(maven.KAFKA_NEWEST).removesuffix("/*"))
    classes = compile_java(JAVA_PROGRAMS / "ReadByPattern.java", lib, tmp_path / "classes")
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(20):
        producer.produce(f"pattern-{number % 2}", b"x")
    assert producer.flush(60) == 0
    command = java(lib, "ReadByPattern", node.kafka, "pattern-.*", "20", classes=classes)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout.strip() == "read 20", done.stderr[-2000:]
