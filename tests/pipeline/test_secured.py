"""Spark against a node that asks for TLS and a login (SCRAM): source, stream and sink; the password shows nowhere."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.certificates import Authority
from tests.support.node import NodeProcess, running_node
from tests.support.pipelines import patiently

PASSWORD = "wood-and-water-4711"
TOPICS = ("orders", "copies")


class Secured:
    def __init__(self, node: NodeProcess, folder: Path, authority: Authority) -> None:
        self.node = node
        self.folder = folder
        self.options = {
            "kafka.bootstrap.servers": node.kafka,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority.certificate),
            "kafka.client.config": self.properties("spark", PASSWORD),
        }
        self.librdkafka = {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(authority.certificate),
        }

    def properties(self, user: str, password: str) -> str:
        path = self.folder / f"{user}.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        path.write_text(f'sasl.jaas.config={module} required username="{user}" password="{password}";\n')
        return str(path)

    def headrace(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "headrace", *arguments, "--local", str(self.node.data_dir)]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "certificates")
    certificate, key = authority.issue("localhost")
    (folder / "password").write_text(PASSWORD)
    settings = {
        "security.authorization.enable": "true",
        "listener.kafka.sasl": "SCRAM-SHA-512",
        "listener.kafka.tls.certificate": str(certificate),
        "listener.kafka.tls.key": str(key),
    }
    with running_node(folder / "data", settings, {"HEADRACE_ADMIN_PASSWORD_FILE": str(folder / "password")}) as node:
        found = Secured(node, folder, authority)
        found.headrace("user", "create", "spark", "--password-file", str(folder / "password"))
        for topic in TOPICS:
            found.headrace("acl", "allow", "spark", "read", topic, "--group", "copy")
        found.headrace("acl", "allow", "spark", "write", "copies")
        found.headrace("acl", "allow", "spark", "all", "copy", "--kind", "transactional-id")
        for topic in TOPICS:
            create(found, topic)
        producer = Producer(found.librdkafka)
        for number in range(20):
            producer.produce("orders", str(number).encode(), str(number).encode())
        assert producer.flush(30) == 0
        yield found


def create(secured: Secured, topic: str) -> None:
    admin = AdminClient(secured.librdkafka)
    (future,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    future.result()


@pytest.mark.slow
def test_records_are_read_copied_and_the_password_shows_nowhere(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    frame = spark.read.format("headrace").options(**secured.options, subscribe="orders").load()
    assert sorted(int(row.value) for row in frame.select("value").collect()) == list(range(20))
    shown = str(frame._jdf.queryExecution().toString())
    checkpoint = tmp_path / "checkpoint"

    def copy() -> None:
        stream = spark.readStream.format("headrace").options(
            **secured.options, subscribe="orders", startingOffsets="earliest"
        )
        query = (
            stream.load()
            .select("key", "value")
            .writeStream.format("headrace")
            .options(**secured.options, topic="copies", applicationId="copy", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    patiently(copy)
    copies = spark.read.format("headrace").options(**secured.options, subscribe="copies").load()
    assert sorted(int(row.value) for row in copies.select("value").collect()) == list(range(20))
    written = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    assert written
    for told in (shown.encode(), written, secured.node.log_path.read_bytes()):
        assert PASSWORD.encode() not in told


@pytest.mark.slow
def test_who_has_no_right_or_another_password_reads_nothing(spark: SparkSession, secured: Secured) -> None:
    wrong = {**secured.options, "kafka.client.config": secured.properties("wrong", "not the password")}
    with pytest.raises(PySparkException, match="refused the login of 'wrong'") as caught:
        spark.read.format("headrace").options(**wrong, subscribe="orders").load().collect()
    assert "not the password" not in str(caught.value)
    plain = {name: value for name, value in secured.options.items() if "bootstrap" in name}
    with pytest.raises(PySparkException):
        spark.read.format("headrace").options(**plain, subscribe="orders").load().collect()
