"""Kafka Streams with exactly_once_v2 and Kafka Connect in distributed mode, against a real node."""

import contextlib
import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.java import CONNECT, STREAMS, Java, compile_java, jars
from tests.support.node import NodeProcess, eventually

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
        future.result(10)
    producer = Producer({"bootstrap.servers": node.kafka})
    for _ in range(100):
        producer.produce("lines", value="hello world of water")
    producer.flush(10)
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

    command = Java(lib, classes).command("WordCount", node.kafka, str(tmp_path / "state"))
    with running(command, tmp_path / "streams.log"):
        eventually(are_counted, 60, "the words were not counted", (tmp_path / "streams.log").read_text)
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
    lib = jars(CONNECT, VERSION)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = tmp_path / "connect.properties"
    settings.write_text(CONNECT_SETTINGS.format(bootstrap=node.kafka, port=port))
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthree\n")

    def call(path: str, body: object = None) -> Any:  # Any: whatever JSON Connect answers
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    def is_done(path: str, body: object = None) -> bool:
        try:
            call(path, body)
        except OSError:
            return False
        return True

    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    for _ in ("first start", "restart on existing topics"):
        log = tmp_path / "connect.log"
        with running(Java(lib).command(main, str(settings)), log):
            eventually(lambda: is_done("/connectors"), 60, "Connect did not come up", log.read_text)
            if not sink.exists():
                reads = {"connector.class": "FileStreamSource", "file": str(source), "topic": "filed"}
                writes = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "filed"}
                body = {"name": "reads", "config": reads}
                eventually(lambda body=body: is_done("/connectors", body), 30, "no connector")  # type: ignore[misc]
                assert is_done("/connectors", {"name": "writes", "config": writes})
            eventually(
                lambda: sink.exists() and sink.read_text() == "one\ntwo\nthree\n",
                40,
                "nothing was moved",
                log.read_text,
            )
