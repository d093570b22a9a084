"""Kafka Streams with exactly_once_v2 and Kafka Connect in distributed mode, against a real node."""

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.java import CONNECT, STREAMS, compile_java, jars, java
from tests.support.node import NodeProcess, eventually
from tests.support.ports import kept_port

pytestmark = pytest.mark.long
NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}
VERSION = "3.9.1"
PROGRAMS = Path(__file__).resolve().parents[1] / "support" / "java_programs"


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def test_streams_word_count_is_exact(node: NodeProcess, tmp_path: Path) -> None:
    lib = jars(STREAMS, VERSION)
    classes = compile_java(PROGRAMS / "WordCount.java", lib, tmp_path / "classes")
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for future in admin.create_topics([NewTopic("lines", 2, 1), NewTopic("counts", 2, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": node.kafka})
    for _ in range(100):
        producer.produce("lines", value="hello world of water")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": "reads-counts",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["counts"])
    counts: dict[bytes, bytes] = {}

    def are_counted() -> bool:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            counts[message.key()] = message.value()
        return counts == dict.fromkeys((b"hello", b"world", b"of", b"water"), b"100")

    command = java(lib, "WordCount", node.kafka, str(tmp_path / "state"), classes=classes)
    with running(command, tmp_path / "streams.log"):
        eventually(are_counted, 200, "the words were not counted", (tmp_path / "streams.log").read_text)
    consumer.close()


CONNECT_SETTINGS = """bootstrap.servers={bootstrap}
group.id=connect-cluster
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
offset.flush.interval.ms=1000
exactly.once.source.support=enabled
listeners=http://127.0.0.1:{port}
"""


@pytest.mark.trap(42, 44)
def test_connect_moves_a_file_through_a_topic(node: NodeProcess, tmp_path: Path) -> None:
    """Connect checks the cleanup policy of its topics and joins a group of its own protocol type."""
    with kept_port() as port:
        move_a_file(node, tmp_path, port)


def move_a_file(node: NodeProcess, tmp_path: Path, port: int) -> None:
    lib = jars(CONNECT, VERSION)
    settings = tmp_path / "connect.properties"
    settings.write_text(CONNECT_SETTINGS.format(bootstrap=node.kafka, port=port))
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthree\n")

    def call(path: str, body: object = None) -> Any:  # Any: whatever JSON Connect answers
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def is_done(path: str, body: object = None) -> bool:
        """Not while the workers rebalance; asking again for what was done changes nothing."""
        try:
            call(path, body)
        except OSError:
            return False
        return True

    def is_running(connector: str) -> bool:
        try:
            status = call(f"/connectors/{connector}/status")
        except OSError:
            return False
        return [each["state"] for each in (status["connector"], *status["tasks"])] == ["RUNNING", "RUNNING"]

    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    log = tmp_path / "connect.log"
    reads = {"connector.class": "FileStreamSource", "file": str(source), "topic": "filed"}
    writes = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "filed"}
    with running(java(lib, main, str(settings)), log):
        eventually(lambda: is_done("/connectors"), 120, "Connect did not come up", log.read_text)
        for name, config in (("reads", reads), ("writes", writes)):
            eventually(
                lambda name=name, config=config: is_done(f"/connectors/{name}/config", config),  # type: ignore[misc]
                60,
                f"{name} was not made",
                log.read_text,
            )
        eventually(
            lambda: sink.exists() and sink.read_text() == "one\ntwo\nthree\n", 120, "nothing was moved", log.read_text
        )
    # Again, on topics that exist: its connectors are still known, and go on.
    with running(java(lib, main, str(settings)), log):
        eventually(lambda: is_running("reads") and is_running("writes"), 120, "Connect did not go on", log.read_text)
