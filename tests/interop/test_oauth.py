"""Logging in by a token (OAUTHBEARER), with the clients that people have, and tokens that must not let anybody in."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer
from tests.interop.test_login import authenticate, handshake, headrace, serves
from tests.support.java_kafka import VERSIONS, KafkaTools
from tests.support.kafka_clients import KafkaProducer, KafkaTokenProvider
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka
from tests.support.tokens import Issuer

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse


class Running:
    def __init__(self, node: NodeProcess, issuer: Issuer) -> None:
        self.node = node
        self.issuer = issuer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("oauth")
    issuer = Issuer(directory)
    settings = {
        "security.authorization.enable": "true",
        "security.plain.insecure": "true",
        "listener.kafka.sasl": "OAUTHBEARER,SCRAM-SHA-256",
        **issuer.settings,
    }
    with running_node(directory / "data", settings) as node:
        headrace(node, "acl", "allow", "alice", "all", "orders", "--group", "*")
        yield Running(node, issuer)


def log_in(client: RawKafka, token: str, before: str = "n,,") -> SaslAuthenticateResponse:
    assert handshake(client, "OAUTHBEARER") == 0
    return authenticate(client, f"{before}\1auth=Bearer {token}\1\1".encode())


def properties(running: Running, directory: Path) -> Path:
    token, found = directory / "alice.jwt", directory / "alice.properties"
    token.write_text(running.issuer.token("alice"))
    found.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    )
    return found


def test_librdkafka_logs_in(running: Running) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": running.node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (running.issuer.token("alice"), time.time() + 600),
        }
    )
    producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]


def test_kafka_python_logs_in(running: Running) -> None:
    class Provider(KafkaTokenProvider):  # type: ignore[misc] # it has no types
        def token(self) -> str:
            return running.issuer.token("alice")

    producer = KafkaProducer(
        bootstrap_servers=running.node.kafka,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send("orders", b"kafka-python").get(60).offset >= 0
    producer.close()


def test_aiokafka_logs_in(running: Running) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc] # it has no types
        async def token(self) -> str:
            return running.issuer.token("alice")

    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=running.node.kafka,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"aiokafka")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


def test_kafkas_tools_log_in(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = KafkaTools(VERSIONS[-1])
    found = properties(running, tmp_path)
    url = f"file://{tmp_path / 'alice.jwt'}"
    # Kafka's clients read no URL that was not allowed so.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    at = ("--bootstrap-server", running.node.kafka)
    tools.run("kafka-console-producer", *at, "--topic", "orders", "--producer.config", str(found), lines=["from java"])
    assert "orders" in tools.run("kafka-topics", *at, "--command-config", str(found), "--list")


def test_the_command_line_logs_in(running: Running, tmp_path: Path) -> None:
    found = properties(running, tmp_path)
    # Those that only Java knows; librdkafka refuses them.
    found.write_text("\n".join(line for line in found.read_text().splitlines() if "Login" not in line))
    environment = {**running.node.environment, "HEADRACE_CLIENT_CONFIG": str(found)}
    for command, given in ((["produce", "orders"], "hello\n"), (["topic", "describe", "orders"], "")):
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *command, "-b", running.node.kafka],
            capture_output=True,
            text=True,
            input=given,
            env=environment,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "claims", [{"iss": "https://elsewhere.example"}, {"aud": "other"}, {"exp": 1_000_000}], ids=str
)
def test_a_token_that_is_not_for_us_is_refused_and_closed(
    running: Running, claims: dict[str, Any]
) -> None:  # Any: JSON
    with RawKafka(running.node.kafka) as client:
        answer = log_in(client, running.issuer.token("alice", **claims))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: invalid credentials"
        assert not serves(client)


@pytest.mark.parametrize(
    "message",
    [b"", b"\1", b"n,,", b"n,,\1\1", b"n,,\1auth=Bearer\1\1", b"y,,\1auth=Bearer x\1\1", b"\xff\1auth=Bearer x\1\1"],
)
def test_what_is_no_token_is_refused(running: Running, message: bytes) -> None:
    with RawKafka(running.node.kafka) as client:
        assert handshake(client, "OAUTHBEARER") == 0
        assert authenticate(client, message).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_acting_as_another_is_refused(running: Running) -> None:
    token = running.issuer.token("alice")
    for named, code in (("alice", 0), ("bob", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        with RawKafka(running.node.kafka) as client:
            assert log_in(client, token, f"n,a={named},").error_code == code


def test_a_login_ends_with_its_token(running: Running) -> None:
    with RawKafka(running.node.kafka) as client:
        answer = log_in(client, running.issuer.token("alice", exp=int(time.time()) + 4))
        assert 0 < answer.session_lifetime_ms <= 4000
        eventually(lambda: not serves(client), 60, "still served")
    with RawKafka(running.node.kafka) as client:
        log_in(client, running.issuer.token("alice", exp=int(time.time()) + 4))
        answer = log_in(client, running.issuer.token("alice"))
        assert answer.session_lifetime_ms > 60_000
        # A new login is that of the same bearer.
        assert log_in(client, running.issuer.token("bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_tokens_are_nowhere(running: Running) -> None:
    token = running.issuer.token("alice")
    with RawKafka(running.node.kafka) as good, RawKafka(running.node.kafka) as bad:
        assert log_in(good, token).error_code == 0
        assert log_in(bad, token[:-6] + "AAAAAA").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    secret = token.split(".")[1].encode()
    for path in [running.node.log_path, *(each for each in running.node.data_dir.rglob("*") if each.is_file())]:
        assert secret not in path.read_bytes(), path
