"""Real Kafka clients through `headrace quic-proxy`: they speak TCP to it, it speaks QUIC to the node."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster import cluster_processes
from tests.support.group_member import PATIENCE_S, QUICK_GROUPS
from tests.support.java_kafka import KafkaTools
from tests.support.kafka_clients import KafkaConsumer, KafkaProducer
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.ports import kept_port

from headrace.bench import maven

PASSWORD = "correct horse"
pytestmark = pytest.mark.xdist_group("quic-proxy")


@contextlib.contextmanager
def running_proxy(bootstrap: str, *options: str) -> Iterator[str]:
    """Its address for Kafka clients."""
    command = [sys.executable, "-m", "headrace", "quic-proxy", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Kafka clients: "), process.stderr.read() if process.stderr else line
        yield line.split()[2]
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with kept_port() as port:
        settings = {**QUICK_GROUPS, "listen.kafka": f"127.0.0.1:{port}", "listen.quic": f"127.0.0.1:{port}"}
        with running_node(tmp_path_factory.mktemp("proxied") / "data", settings) as started:
            yield started


@pytest.fixture(scope="module")
def proxy(node: NodeProcess) -> Iterator[str]:
    with running_proxy(node.endpoints["quic"]) as address:
        yield address


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def read_all(bootstrap: str, topic: str, count: int, **options: object) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest", **options}
    )
    found: list[bytes] = []
    try:
        consumer.subscribe([topic])

        def has_all() -> bool:
            found.extend(each.value() for each in consumer.consume(count, 0.5) if each.error() is None)
            return len(found) >= count

        eventually(has_all, PATIENCE_S, f"{count} records of {topic}", lambda: str(len(found)))
        consumer.commit(asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
        assert committed.offset > 0
    finally:
        consumer.close()
    return found


@pytest.mark.requirement("R3.62")
def test_librdkafka_produces_and_reads_in_a_group(node: NodeProcess, proxy: str) -> None:
    create(proxy, "by-librdkafka")
    metadata = AdminClient({"bootstrap.servers": proxy}).list_topics(timeout=PATIENCE_S)
    (told,) = metadata.brokers.values()
    assert f"{told.host}:{told.port}" not in (node.kafka, proxy), "a local listener of its own for that node"
    assert told.host == "127.0.0.1"
    producer = Producer({"bootstrap.servers": proxy, "enable.idempotence": True, "compression.type": "lz4"})
    values = [b"%d" % number for number in range(2000)]
    for value in values:
        producer.produce("by-librdkafka", value)
    assert producer.flush(PATIENCE_S) == 0
    assert read_all(proxy, "by-librdkafka", 2000) == values
    assert read_all(node.kafka, "by-librdkafka", 2000, **{"group.id": "directly"}) == values


def test_librdkafka_has_transactions(proxy: str) -> None:
    create(proxy, "transactions")
    producer = Producer({"bootstrap.servers": proxy, "transactional.id": "over-quic"})
    producer.init_transactions(PATIENCE_S)
    for name, is_kept in (("aborted", False), ("kept", True), ("also kept", True)):
        producer.begin_transaction()
        producer.produce("transactions", name.encode())
        producer.commit_transaction(PATIENCE_S) if is_kept else producer.abort_transaction(PATIENCE_S)
    found = read_all(proxy, "transactions", 2, **{"isolation.level": "read_committed"})
    assert found == [b"kept", b"also kept"]


def test_kafka_python_produces_and_reads(proxy: str) -> None:
    create(proxy, "by-kafka-python")
    producer = KafkaProducer(bootstrap_servers=proxy, acks="all")
    for number in range(300):
        producer.send("by-kafka-python", b"%d" % number)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "by-kafka-python",
        bootstrap_servers=proxy,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )
    found = [next(consumer).value for _ in range(300)]
    consumer.close()
    assert found == [b"%d" % number for number in range(300)]


@pytest.mark.slow
def test_kafkas_own_tools_create_produce_and_read_in_a_group(node: NodeProcess, proxy: str) -> None:
    """Java's client: it finds brokers and coordinators by what the proxy says of them, and pools its connections."""
    tools = KafkaTools(maven.KAFKA_NEWEST)
    server, topic = ("--bootstrap-server", proxy), ("--topic", "by-java")
    tools.run("kafka-topics", *server, "--create", *topic, "--partitions", "1")
    sent = [f"line {index} äöü" for index in range(200)]
    tools.run("kafka-console-producer", *server, *topic, lines=sent)
    shown = tools.run(
        "kafka-console-consumer",
        *(*server, *topic, "--from-beginning", "--group", "java", "--max-messages", "200", "--timeout-ms", "120000"),
    )
    assert shown.splitlines() == sent
    described = tools.run("kafka-consumer-groups", *server, "--describe", "--group", "java")
    assert "by-java" in described
    assert read_all(node.kafka, "by-java", 200) == [each.encode() for each in sent]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_kill_nine(node: NodeProcess, proxy: str) -> None:
    """The proxy finds the node again, and the client knows nothing of either."""
    create(proxy, "killed")
    acknowledged: list[bytes] = []

    def note(error: KafkaError | None, message: object) -> None:
        if error is None:
            acknowledged.append(message.value())  # type: ignore[attr-defined]  # confluent-kafka ships no types

    producer = Producer(
        {
            "bootstrap.servers": proxy,
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 100,
        }
    )
    sent = [b"%d" % number for number in range(1500)]
    for index, value in enumerate(sent):
        producer.produce("killed", value, on_delivery=note)
        producer.poll(0.001)
        if index in (500, 1000):
            node.kill()
            node.start()
    assert producer.flush(2 * PATIENCE_S) == 0
    assert acknowledged == sent
    assert read_all(proxy, "killed", len(sent)) == sent, "once each, in order"


@pytest.mark.slow
def test_logins_and_rights_hold_over_quic(tmp_path: Path) -> None:
    """Who may do what is the Kafka door's business: the same users, the same rules, the same refusals."""
    settings = {"listener.quic.sasl": "SCRAM-SHA-256,PLAIN", "security.authorization.enable": "true"}
    with running_node(tmp_path / "data", settings) as node:
        headrace(node, "user", "create", "alice")
        headrace(node, "acl", "allow", "alice", "all", "hers")
        with running_proxy(node.endpoints["quic"]) as proxy:
            login = {
                "bootstrap.servers": proxy,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.username": "alice",
                "sasl.password": PASSWORD,
            }
            for mechanism, topic, is_hers in (("SCRAM-SHA-256", "hers", True), ("PLAIN", "not-hers", False)):
                alice = AdminClient({**login, "sasl.mechanism": mechanism})
                made = alice.create_topics([NewTopic(topic, 1, 1)])[topic]
                with contextlib.nullcontext() if is_hers else pytest.raises(KafkaException, match="AUTHORIZATION"):
                    made.result(PATIENCE_S)
            for stranger in ({"bootstrap.servers": proxy}, {**login, "sasl.mechanism": "PLAIN", "sasl.password": "x"}):
                with pytest.raises(KafkaException):
                    AdminClient(stranger).list_topics(timeout=3)


def headrace(node: NodeProcess, *arguments: str) -> None:
    command = [sys.executable, "-m", "headrace", *arguments, "--local", str(node.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, input=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.requirement("R3.21")
def test_every_broker_of_a_cluster_is_reached_from_any(tmp_path: Path) -> None:
    """The proxy bootstraps from the first that answers, and finds the others by what that one tells."""
    with cluster_processes(tmp_path) as cluster, kept_port() as nobody:
        cluster.start_controllers()
        brokers = [cluster.start_broker(name) for name in ("a", "b")]
        registered = cluster.registration("a")
        assert registered is not None
        assert f"127.0.0.1:{registered.port_quic}" == brokers[0].endpoints["quic"]
        bootstrap = ",".join([f"127.0.0.1:{nobody}", *(each.endpoints["quic"] for each in brokers)])
        with running_proxy(bootstrap) as proxy:
            admin = AdminClient({"bootstrap.servers": proxy})
            admin.create_topics([NewTopic("shared", 4, 1)])["shared"].result(PATIENCE_S)

            def is_led() -> bool:
                partitions = admin.list_topics("shared", timeout=PATIENCE_S).topics["shared"].partitions.values()
                return len({each.leader for each in partitions if each.leader >= 0}) == 2

            eventually(is_led, PATIENCE_S, "both lead some of it")
            producer = Producer({"bootstrap.servers": proxy, "enable.idempotence": True})
            for partition in range(4):
                producer.produce("shared", b"to %d" % partition, partition=partition)
            assert producer.flush(PATIENCE_S) == 0
            consumer = Consumer({"bootstrap.servers": proxy, "group.id": "x", "auto.offset.reset": "earliest"})
            consumer.assign([TopicPartition("shared", partition, 0) for partition in range(4)])
            found: set[bytes] = set()

            def has_all() -> bool:
                found.update(each.value() for each in consumer.consume(4, 0.5) if each.error() is None)
                return len(found) == 4

            eventually(has_all, PATIENCE_S, "one record of each partition", lambda: str(found))
            consumer.close()


def test_the_command_line_has_the_door(node: NodeProcess) -> None:
    def headrace_cli(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", *arguments, "--door", "quic"]
        return subprocess.run(command, capture_output=True, text=True, input=text, timeout=PATIENCE_S)

    address = ("--address", node.endpoints["quic"])
    sent = headrace_cli("produce", "by-hand", "--codec", "zstd", *address, text="one\ntwo\n")
    assert (sent.returncode, sent.stderr) == (0, "2 records to by-hand\n")
    read = headrace_cli("consume", "by-hand", "--from-beginning", "--no-follow", *address)
    assert (read.returncode, read.stdout, read.stderr) == (0, "one\ntwo\n", "")
    lost = headrace_cli("produce", "by-hand", "--address", "127.0.0.1:1", text="x\n")
    assert (lost.returncode, lost.stderr) == (1, "headrace: no node at 127.0.0.1:1 (UDP): nobody listens there\n")
