"""TLS at every TCP door, with the clients that people have: who may come in, who they are, and new certificates."""

import json
import socket
import ssl
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from tests.support.certificates import Authority
from tests.support.kafka_clients import KafkaProducer
from tests.support.node import NodeProcess, eventually, running_node

from headrace.wire.rustlog import messages as m
from headrace.wire.rustlog.codec import decode_response, encode

PASSWORD = "wood and water"


class Secured:
    def __init__(self, node: NodeProcess, authority: Authority) -> None:
        self.node = node
        self.authority = authority

    def context(self, client: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if client is not None:
            context.load_cert_chain(*self.authority.issue(client))
        return context

    def connect(self, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
        host, _, port = self.node.endpoints[listener].rpartition(":")
        plain = socket.create_connection((host, int(port)), 20)
        return context.wrap_socket(plain, server_hostname="localhost")

    def librdkafka(self, listener: str, client: str | None = None) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.node.endpoints[listener],
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
        }
        if client is not None:
            certificate, key = self.authority.issue(client)
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return settings

    def acl(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "headrace", "acl", *arguments, "--local", str(self.node.data_dir)]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "certificates")
    certificate, key = authority.issue("server")
    (directory / "password").write_text(PASSWORD)
    tls = {"tls.certificate": str(certificate), "tls.key": str(key)}
    mutual = {**tls, "tls.client.ca": str(authority.certificate), "tls.client.auth": "required"}
    rules = {"tls.principal.rules": json.dumps(["RULE:^CN=(.*?),O=Mill.*$/$1/L"])}
    listeners = {
        "kafka": {**tls, "sasl": "SCRAM-SHA-512,PLAIN"},
        "mutual": {**mutual, **rules, "door": "kafka", "listen": "127.0.0.1:0"},
        "rustlog": mutual,
        "mlog": tls,
        "admin": tls,
    }
    settings = {
        "security.authorization.enable": "true",
        **{f"listener.{name}.{key}": value for name, keys in listeners.items() for key, value in keys.items()},
    }
    environment = {"HEADRACE_ADMIN_PASSWORD_FILE": str(directory / "password")}
    with running_node(directory / "data", settings, environment) as node:
        found = Secured(node, authority)
        found.acl("allow", "alice", "all", "*", "--group", "*")
        yield found


def sasl(secured: Secured, mechanism: str) -> dict[str, str]:
    return {
        **secured.librdkafka("kafka"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
    }


def deliver(settings: dict[str, str], value: bytes = b"v", topic: str = "orders") -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 20_000, "message.max.bytes": 2_000_000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(25)
    return errors[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_logs_in_through_tls(secured: Secured, mechanism: str) -> None:
    assert deliver(sasl(secured, mechanism)) is None


def test_records_of_any_size_pass_both_ways(secured: Secured) -> None:
    values = [b"x" * size for size in (1, 70_000, 900_000)]
    for value in values:
        assert deliver(sasl(secured, "SCRAM-SHA-512"), value, "sizes") is None
    consumer = Consumer({**sasl(secured, "SCRAM-SHA-512"), "group.id": "sizes", "auto.offset.reset": "earliest"})
    consumer.subscribe(["sizes"])
    read = [consumer.poll(30) for _ in values]
    assert [each.value() for each in read if each is not None] == values
    consumer.close()


def test_a_certificate_says_who_a_client_is(secured: Secured) -> None:
    # The subject is CN=Alice,O=Mill\, Inc.,C=DE, and the rule makes it alice.
    assert deliver(secured.librdkafka("mutual", "Alice")) is None
    denied = deliver(secured.librdkafka("mutual", "Mallory"))
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_command_line_speaks_tls(secured: Secured, tmp_path: Path) -> None:
    certificate, key = secured.authority.issue("alice")
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.ca.location={secured.authority.certificate}\n"
        f"ssl.certificate.location={certificate}\nssl.key.location={key}\n"
    )
    secured.acl("allow", "alice", "describe", "--kind", "cluster")
    for command, expected in ((["topic", "create", "by-cli"], "created by-cli"), (["acl", "list"], "User:alice")):
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *command, "-b", secured.node.endpoints["mutual"]],
            capture_output=True,
            text=True,
            env={**secured.node.environment, "HEADRACE_CLIENT_CONFIG": str(config)},
        )
        assert expected in done.stdout, done.stderr


def test_kafka_python_shows_its_certificate(secured: Secured) -> None:
    certificate, key = secured.authority.issue("ALICE")
    producer = KafkaProducer(
        bootstrap_servers=secured.node.endpoints["mutual"],
        security_protocol="SSL",
        ssl_cafile=str(secured.authority.certificate),
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
    )
    assert producer.send("orders", b"kafka-python").get(20).offset >= 0
    producer.close()


def test_rustlog_knows_its_client_by_the_certificate(secured: Secured) -> None:
    with secured.connect("rustlog", secured.context("bob")) as bob:
        bob.sendall(encode(m.CreateTopic(topic="by-bob", partition_count=1)))
        assert isinstance(answer_of(bob), m.Error)
        secured.acl("allow", "User:CN=bob,O=Mill\\, Inc.,C=DE", "all", "by-bob")
        bob.sendall(encode(m.CreateTopic(topic="by-bob", partition_count=1)))
        assert isinstance(answer_of(bob), m.CreateTopicResponse)


def answer_of(connection: ssl.SSLSocket) -> object:
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        data = connection.recv(65536)
        assert data, "closed"
        received += data
    return decode_response(received[4:])


def test_the_admin_door_speaks_tls(secured: Secured) -> None:
    address = f"https://{secured.node.endpoints['admin']}/health"
    with urllib.request.urlopen(address, context=secured.context()) as answer:
        assert json.load(answer)["is_ready"] is True


@pytest.mark.parametrize("listener", ["mutual", "rustlog"])
def test_who_shows_no_certificate_of_ours_is_not_let_in(secured: Secured, listener: str, tmp_path: Path) -> None:
    strange = ssl.create_default_context(cafile=secured.authority.certificate)
    strange.load_cert_chain(*Authority(tmp_path, "another").issue("alice"))
    for context in (secured.context(), strange):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(secured, listener, context)


def ask(secured: Secured, listener: str, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client hears that it is refused when it reads."""
    with secured.connect(listener, context) as connection:
        connection.sendall(bytes(12))
        if connection.recv(1) == b"":
            raise ConnectionError("closed")


@pytest.mark.parametrize("listener", ["kafka", "mutual", "rustlog", "mlog", "admin"])
def test_old_versions_and_plain_text_are_not_spoken(secured: Secured, listener: str) -> None:
    old = secured.context("alice")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secured.connect(listener, old)
    host, _, port = secured.node.endpoints[listener].rpartition(":")
    with socket.create_connection((host, int(port)), 20) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = plain.recv(1000)
        assert received == b"" or received[0] == 21  # an alert of TLS


def test_a_new_certificate_is_shown_to_those_who_come_and_nobody_is_dropped(secured: Secured) -> None:
    with secured.connect("mlog", secured.context()) as early:
        before = early.getpeercert(binary_form=True)
        secured.authority.issue("server")

        def is_new() -> bool:
            with secured.connect("mlog", secured.context()) as late:
                return late.getpeercert(binary_form=True) != before

        eventually(is_new, 60, "the former certificate is still shown")
        early.sendall((23).to_bytes(2, "big") + (2).to_bytes(4, "big") + b"{}")
        assert early.recv(100)


def test_a_broken_certificate_is_said_and_the_former_one_stays(secured: Secured) -> None:
    good = secured.authority.folder / "server.pem"
    text = good.read_bytes()
    good.write_text("-----BEGIN CERTIFICATE-----\nnot one\n")
    try:
        eventually(
            lambda: "certificate not read" in secured.node.log_path.read_text(), 10, "nobody said that it is broken"
        )
        with secured.connect("mlog", secured.context()) as late:
            assert late.getpeercert()
    finally:
        good.write_bytes(text)
