"""Logging in, with the clients that people have, and everything that must not let anybody in."""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from tests.support.kafka_clients import KafkaProducer
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import Closed, RawKafka, batch_of, produce_request

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.metadata_response import MetadataResponse
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.kafka.sasl import exchange

PASSWORD = "correct horse, battery=staple"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SETTINGS = {
    "security.authorization.enable": "true",
    "security.plain.insecure": "true",
    "listener.kafka.sasl": ",".join(MECHANISMS),
    "listener.short.door": "kafka",
    "listener.short.listen": "127.0.0.1:0",
    "listener.short.sasl": "SCRAM-SHA-256",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("login")
    (directory / "password").write_text(PASSWORD + "\n")
    environment = {"HEADRACE_ADMIN_PASSWORD_FILE": str(directory / "password")}
    with running_node(directory / "data", SETTINGS, environment) as running:
        for name in ("alice", "bob"):
            headrace(running, "user", "create", name)
        headrace(running, "acl", "allow", "alice", "all", "*", "--group", "*")
        with logged_in(running, "admin") as admin:
            topic = CreatableTopic("orders", 1, 1)
            made = admin.call(CreateTopicsRequest([topic]), 5, CreateTopicsResponse)
            assert made.topics[0].error_code == 0
        yield running


def headrace(node: NodeProcess, *arguments: str, status: int = 0, password: str = PASSWORD) -> str:
    command = [sys.executable, "-m", "headrace", *arguments, "--local", str(node.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, input=password + "\n")
    assert done.returncode == status, done.stderr
    return done.stdout


def handshake(client: RawKafka, mechanism: str = "SCRAM-SHA-256") -> int:
    return client.call(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse).error_code


def authenticate(client: RawKafka, message: bytes) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(message), 2, SaslAuthenticateResponse)


def log_in(client: RawKafka, user: str, mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD) -> None:
    assert handshake(client, mechanism) == 0
    steps = exchange(mechanism, user, password, nonce=base64.b64encode(user.encode()).decode())
    message = next(steps)
    while True:
        answer = authenticate(client, message)
        assert answer.error_code == 0, answer.error_message
        try:
            message = steps.send(answer.auth_bytes)
        except StopIteration:
            return


def logged_in(node: NodeProcess, user: str, **how: str) -> RawKafka:
    client = RawKafka(node.kafka)
    log_in(client, user, **how)
    return client


def serves(client: RawKafka) -> bool:
    try:
        return client.call(MetadataRequest(topics=[]), 9, MetadataResponse).cluster_id is not None
    except Closed:
        return False


# Clients


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(node: NodeProcess, mechanism: str) -> None:
    settings = {
        "bootstrap.servers": node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    errors: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce("orders", mechanism.encode(), on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors == [None]
    consumer = Consumer({**settings, "group.id": f"by-{mechanism}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_old_librdkafka_logs_in(node: NodeProcess, mechanism: str) -> None:
    """One that takes the broker for Kafka 0.11: SaslHandshake v0, and the messages of the login bare."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "api.version.request": False,
            "broker.version.fallback": "0.11.0.0",
        }
    )
    producer.produce("orders", mechanism.encode(), on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(node: NodeProcess, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=node.kafka,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("orders", b"kafka-python").get(20).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(node: NodeProcess, mechanism: str) -> None:
    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=node.kafka,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"aiokafka")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


@pytest.mark.parametrize("command", ["topic list", "produce orders", "consume orders -e", "group list", "user list"])
def test_whom_the_node_does_not_let_in_is_told_so_at_once(node: NodeProcess, tmp_path: Path, command: str) -> None:
    def told(properties: dict[str, str] | None) -> str:
        environment = dict(os.environ)
        if properties is not None:
            (tmp_path / "properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            environment["HEADRACE_CLIENT_CONFIG"] = str(tmp_path / "properties")
        asked = [sys.executable, "-m", "headrace", *command.split(), "--bootstrap", node.kafka]
        done = subprocess.run(asked, env=environment, input="x\n", capture_output=True, text=True, timeout=20)
        assert done.returncode == 1
        return done.stderr

    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    assert "does it ask for a login? HEADRACE_CLIENT_CONFIG names the file" in told(None)
    assert told({**login, "sasl.password": "wrong"}) == "headrace: Authentication failed: invalid credentials\n"
    assert "no TLS there" in told({**login, "sasl.password": PASSWORD, "security.protocol": "SASL_SSL"})


def test_the_command_line_logs_in_by_a_file(node: NodeProcess, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"# alice\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={PASSWORD}\n"
    )
    for command in (["topic", "list"], ["acl", "list"]):
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *command, "-b", node.kafka],
            capture_output=True,
            text=True,
            env={**node.environment, "HEADRACE_CLIENT_CONFIG": str(config)},
        )
        if command[0] == "topic":
            assert (done.returncode, "orders" in done.stdout) == (0, True), done.stderr
        else:
            assert "not allowed to administer access" in done.stderr


# Holes


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("alice", "")])
def test_who_cannot_prove_it_is_refused_and_closed(node: NodeProcess, mechanism: str, user: str, password: str) -> None:
    with RawKafka(node.kafka) as client:
        assert handshake(client, mechanism) == 0
        steps = exchange(mechanism, user, password, nonce="abc")
        answer = authenticate(client, next(steps))
        if mechanism != "PLAIN":
            answer = authenticate(client, steps.send(answer.auth_bytes))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        # The same words, whatever was wrong.
        assert answer.error_message == "Authentication failed: invalid credentials"
        assert not serves(client)


def test_nothing_but_a_login_is_served_before_it(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        client.api_versions()
        assert not serves(client)
    with RawKafka(node.kafka) as client, pytest.raises(Closed):
        client.produce("orders", 0, batch_of([b"v"]))


def test_a_mechanism_that_was_not_offered_is_refused_and_closed(node: NodeProcess) -> None:
    with RawKafka(node.endpoints["short"]) as client:
        answer = client.call(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256"])
        assert not serves(client)


def test_acting_as_another_is_refused(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        handshake(client, "PLAIN")
        answer = authenticate(client, f"admin\0bob\0{PASSWORD}".encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with RawKafka(node.kafka) as client:
        handshake(client)
        answer = authenticate(client, b"n,a=admin,n=bob,r=abc")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_stranger_may_not_make_us_remember_much(node: NodeProcess) -> None:
    with RawKafka(node.kafka) as client:
        client.send((65 * 1024).to_bytes(4, "big") + bytes(100))
        assert client.is_closed_by_peer()
    with logged_in(node, "alice") as client:
        assert client.produce("orders", 0, batch_of([b"v" * 200_000])).error_code == 0


@pytest.mark.long
def test_a_stranger_is_waited_for_only_so_long(node: NodeProcess) -> None:
    with socket.create_connection(tuple(node.kafka.rsplit(":", 1))) as stranger:  # type: ignore[arg-type]
        stranger.settimeout(30)
        started = time.monotonic()
        assert stranger.recv(1) == b""
        assert 8 < time.monotonic() - started < 25


def test_strangers_do_not_keep_others_out_for_long(node: NodeProcess) -> None:
    crowd = [socket.create_connection(tuple(node.kafka.rsplit(":", 1))) for _ in range(250)]  # type: ignore[arg-type]
    try:
        crowd[-1].settimeout(10)
        assert crowd[-1].recv(1) == b""
    finally:
        for each in crowd:
            each.close()
    eventually(lambda: _can_log_in(node), 60, "nobody can log in any more")


def _can_log_in(node: NodeProcess) -> bool:
    try:
        with logged_in(node, "alice") as client:
            return serves(client)
    except Closed:
        return False


def test_a_user_who_is_gone_is_closed(node: NodeProcess) -> None:
    headrace(node, "user", "create", "carol")
    with logged_in(node, "carol") as carol, logged_in(node, "alice") as alice:
        assert serves(carol)
        headrace(node, "user", "delete", "carol")
        eventually(lambda: not serves(carol), 60, "still served")
        assert serves(alice)


def test_another_password_ends_what_the_old_one_began(node: NodeProcess) -> None:
    headrace(node, "user", "create", "dave")
    with logged_in(node, "dave") as dave:
        headrace(node, "user", "password", "dave", password="another")
        eventually(lambda: not serves(dave), 60, "still served")
    with logged_in(node, "dave", password="another") as dave:
        assert serves(dave)


def test_a_new_login_must_be_the_same_users(node: NodeProcess) -> None:
    with logged_in(node, "alice") as client:
        log_in(client, "alice", "SCRAM-SHA-512")
        assert serves(client)
        handshake(client, "PLAIN")
        assert authenticate(client, f"\0bob\0{PASSWORD}".encode()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not serves(client)


def test_passwords_are_nowhere(node: NodeProcess) -> None:
    """Not in the log, the metastore, the records, or what the node says of itself."""
    secret = PASSWORD.encode()
    for path in [node.log_path, *(each for each in node.data_dir.rglob("*") if each.is_file())]:
        assert secret not in path.read_bytes(), path
    shown = headrace(node, "user", "list", "--json")
    assert {each["user"] for each in json.loads(shown)} >= {"admin", "alice", "bob"}
    assert PASSWORD not in shown


def test_a_login_that_is_over_is_closed_unless_it_is_made_anew(tmp_path: Path) -> None:
    settings = {**SETTINGS, "connections.max.reauth.ms": "2000"}
    with running_node(tmp_path / "data", settings) as node:
        headrace(node, "user", "create", "alice")
        headrace(node, "acl", "allow", "alice", "all", "*")
        with logged_in(node, "alice") as late, logged_in(node, "alice") as renewed:
            late.create_topic("orders")
            assert late.produce("orders", 0, batch_of([b"v"])).error_code == 0
            time.sleep(1)
            log_in(renewed, "alice")
            time.sleep(1.5)
            assert renewed.produce("orders", 0, batch_of([b"v"])).error_code == 0
            # By now it would be served in C: that must not be faster than the end of the login.
            with pytest.raises(Closed):
                late.produce("orders", 0, batch_of([b"v"]))


def test_a_login_is_asked_for_without_access_rules_too(tmp_path: Path) -> None:
    settings = {**SETTINGS, "security.authorization.enable": "false"}
    with running_node(tmp_path / "data", settings) as node:
        headrace(node, "user", "create", "alice")
        with logged_in(node, "alice") as alice:
            alice.create_topic("orders")
            assert alice.produce("orders", 0, batch_of([b"v"])).base_offset == 0
            for acks in (0, 1, -1):
                with RawKafka(node.kafka) as stranger:
                    stranger.send_request(produce_request("orders", 0, batch_of([b"mine"]), acks=acks), 9)
                    assert stranger.is_closed_by_peer()
            for nth in (1, 2):  # The second one is served in C.
                assert alice.produce("orders", 0, batch_of([b"v"])).base_offset == nth
