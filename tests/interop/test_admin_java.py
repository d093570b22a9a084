"""Apache Kafka's own tools, 3.9 and 4.1, against a real node: the commands people type, as they type them."""

import json
from pathlib import Path

import pytest
from tests.support.java import TOOLS, Java, jars
from tests.support.java_kafka import PATIENT_ADMIN
from tests.support.node import NodeProcess, eventually

pytestmark = pytest.mark.slow

NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}
VERSIONS = ["3.9.1", "4.1.0"]
NAMES = {
    "kafka-broker-api-versions": ("kafka.admin.BrokerApiVersionsCommand", "tools.BrokerApiVersionsCommand"),
    "kafka-topics": ("tools.TopicCommand", "tools.TopicCommand"),
    "kafka-console-producer": ("kafka.tools.ConsoleProducer", "tools.ConsoleProducer"),
    "kafka-console-consumer": ("tools.consumer.ConsoleConsumer", "tools.consumer.ConsoleConsumer"),
    "kafka-consumer-groups": ("tools.consumer.group.ConsumerGroupCommand",) * 2,
    "kafka-configs": ("kafka.admin.ConfigCommand",) * 2,
    "kafka-get-offsets": ("tools.GetOffsetShell",) * 2,
    "kafka-delete-records": ("tools.DeleteRecordsCommand",) * 2,
    "kafka-transactions": ("tools.TransactionsCommand",) * 2,
    "kafka-log-dirs": ("tools.LogDirsCommand",) * 2,
    "kafka-leader-election": ("tools.LeaderElectionCommand",) * 2,
    "kafka-producer-perf-test": ("tools.ProducerPerformance",) * 2,
    "kafka-verifiable-producer": ("tools.VerifiableProducer",) * 2,
    "kafka-verifiable-consumer": ("tools.VerifiableConsumer",) * 2,
}
"""The script's name, and the class it runs in 3.9 and in 4.x; `tools.` is short for `org.apache.kafka.tools.`."""


class Tools:
    def __init__(self, node: NodeProcess, version: str) -> None:
        self._node = node
        self._java = Java(jars(TOOLS, version))
        self._column = VERSIONS.index(version)
        self.topic = f"test-topic-{version.replace('.', '-')}"

    def __call__(self, script: str, *arguments: str, stdin: str = "") -> str:
        name = NAMES[script][self._column]
        main = f"org.apache.kafka.{name}" if name.startswith("tools.") else name
        where = () if "perf" in script else ("--bootstrap-server", self._node.kafka)
        # Of its own accord this one waits for five seconds.
        patience = ("--timeout", "120000") if script == "kafka-consumer-groups" else ()
        return self._java.run(main, *where, *arguments, *patience, stdin=stdin)

    @property
    def bootstrap(self) -> str:
        return self._node.kafka


@pytest.fixture(scope="module", params=["3.9.1", pytest.param("4.1.0", marks=pytest.mark.long)])
def tools(request: pytest.FixtureRequest, node: NodeProcess) -> Tools:
    made = Tools(node, request.param)
    made("kafka-topics", "--create", "--topic", made.topic, "--partitions", "3")
    made("kafka-console-producer", "--topic", made.topic, stdin="a\nb\nc\n")
    return made


@pytest.mark.requirement("R4.66")
def test_broker_api_versions(tools: Tools, tmp_path: Path) -> None:
    patience = tmp_path / "patience.properties"
    patience.write_text(PATIENT_ADMIN)
    shown = tools("kafka-broker-api-versions", "--command-config", str(patience))
    assert "Produce(0): 0 to 11" in shown
    assert "DescribeTopicPartitions(75): 0" in shown


@pytest.mark.requirement("R4.67")
def test_topics_describe(tools: Tools) -> None:
    shown = tools("kafka-topics", "--describe", "--topic", tools.topic)
    assert "PartitionCount: 3" in shown
    assert shown.count("Leader: 1") == 3


@pytest.mark.requirement("R4.68", "R4.69")
def test_console_consumer_shows_what_the_console_producer_sent(tools: Tools) -> None:
    shown = tools(
        *("kafka-console-consumer", "--topic", tools.topic, "--from-beginning", "--max-messages", "3"),
        *("--group", f"group-{tools.topic}"),
    )
    assert sorted(shown.split()) == ["a", "b", "c"]
    group = ("--group", f"group-{tools.topic}")
    assert f"group-{tools.topic}" in tools("kafka-consumer-groups", "--list")
    assert tools.topic in tools("kafka-consumer-groups", "--describe", *group)
    assert "Empty" in tools("kafka-consumer-groups", "--describe", "--state", *group)
    topic = ("--topic", tools.topic)
    moved = tools("kafka-consumer-groups", "--reset-offsets", *group, *topic, "--to-earliest", "--execute")
    assert "NEW-OFFSET" in moved
    assert "Successful" in tools("kafka-consumer-groups", "--delete-offsets", *group, *topic)
    assert "was successful" in tools("kafka-consumer-groups", "--delete", *group)


@pytest.mark.long
def test_configs(tools: Tools) -> None:
    entity = ("--entity-type", "topics", "--entity-name", tools.topic)
    tools("kafka-configs", *entity, "--alter", "--add-config", "max.message.bytes=100000")
    assert "max.message.bytes=100000" in tools("kafka-configs", *entity, "--describe")
    tools("kafka-configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in tools("kafka-configs", *entity, "--describe")
    brokers = ("--entity-type", "brokers", "--entity-name", "1")
    assert "default.replication.factor=1" in tools("kafka-configs", *brokers, "--describe", "--all")


@pytest.mark.long
def test_offsets_and_deleted_records(tools: Tools, tmp_path: Path) -> None:
    assert tools("kafka-get-offsets", "--topic", tools.topic).count(tools.topic) == 3
    wanted = {"partitions": [{"topic": tools.topic, "partition": 0, "offset": -1}], "version": 1}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    deleted = tools("kafka-delete-records", "--offset-json-file", str(tmp_path / "wanted.json"))
    assert "low_watermark" in deleted
    assert tools.topic in tools("kafka-log-dirs", "--describe")
    tools("kafka-leader-election", "--all-topic-partitions", "--election-type", "preferred")


@pytest.mark.long
def test_producers_and_transactions(tools: Tools) -> None:
    load = ("--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={tools.bootstrap}")
    assert "5000 records sent" in tools("kafka-producer-perf-test", "--topic", tools.topic, *load, *props)
    name = f"perf-{tools.topic}"
    transactional = ("--transactional-id", name, "--transaction-duration-ms", "50")
    sent = tools("kafka-producer-perf-test", "--topic", tools.topic, *load, *props, *transactional)
    assert "5000 records sent" in sent
    verified = tools("kafka-verifiable-producer", "--topic", tools.topic, "--max-messages", "5")
    assert '"acked":5' in verified
    group = ("--group-id", f"verifies-{tools.topic}", "--max-messages", "5", "--reset-policy", "earliest")
    assert "offsets_committed" in tools("kafka-verifiable-consumer", "--topic", tools.topic, *group)
    assert name in tools("kafka-transactions", "list")
    # A commit is answered when it is decided; it is complete with its last marker.
    eventually(
        lambda: "CompleteCommit" in tools("kafka-transactions", "describe", "--transactional-id", name),
        60,
        "the last transaction is not complete",
    )
    tools("kafka-transactions", "describe-producers", "--topic", tools.topic, "--partition", "0")
    tools("kafka-transactions", "find-hanging", "--broker-id", "1")
