"""Who somebody is at the admin port without a password: a client certificate, or a token of the login service; over REST and gRPC."""

import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from tests.support.certificates import Authority
from tests.support.node import NodeProcess, running_node
from tests.support.tokens import Issuer

from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages

MESSAGES = Messages()
TIMEOUT_S = 60.0


class Running:
    """A node where `alice` may describe the topic `orders`, and nobody else may do anything."""

    def __init__(self, node: NodeProcess, authority: Authority, issuer: Issuer) -> None:
        self.node = node
        self.authority = authority
        self.issuer = issuer

    def rest(self, certificate: str, token: str | None = None) -> int:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(*self.authority.issue(certificate))
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"https://{self.node.endpoints['admin']}", verify=context, timeout=TIMEOUT_S) as api:
            return api.get("/api/v1/topics/orders", headers=headers).status_code

    def grpc(
        self, certificate: str | None, token: str | None = None, *, authority: Authority | None = None
    ) -> grpc.StatusCode:
        pair = (None, None) if certificate is None else (authority or self.authority).issue(certificate)
        chain, key = (None if each is None else each.read_bytes() for each in pair)
        credentials = grpc.ssl_channel_credentials(self.authority.certificate.read_bytes(), key, chain)
        said = () if token is None else (("authorization", f"Bearer {token}"),)
        with grpc.secure_channel(self.node.endpoints["grpc"], credentials) as channel:
            call = channel.unary_unary(f"/{PACKAGE}.{SERVICE}/DescribeTopic")
            request = MESSAGES.of("DescribeTopicRequest")(name="orders").SerializeToString()
            try:
                call(request, timeout=20, metadata=said)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("identities")
    authority, issuer = Authority(directory / "certificates"), Issuer(directory)
    certificate, key = authority.issue("server")
    settings = {
        "security.authorization.enable": "true",
        "listener.kafka.principal": "User:inside",
        "listener.admin.tls.certificate": certificate,
        "listener.admin.tls.key": key,
        "listener.admin.tls.client.ca": authority.certificate,
        "listener.admin.tls.client.auth": "required",
        "listener.admin.tls.principal.rules": '["RULE:^CN=(.*?),O=Mill.*$/$1/"]',
        **issuer.settings,
    }
    with running_node(directory / "data", settings) as node:
        for words in (("allow", "alice", "read", "orders"), ("allow", "inside", "create", "orders")):
            local = [*words, "--local", str(node.data_dir)]
            subprocess.run([sys.executable, "-m", "headrace", "acl", *local], check=True, capture_output=True)
        subprocess.run(
            [sys.executable, "-m", "headrace", "topic", "create", "orders", "--bootstrap", node.kafka],
            check=True,
            capture_output=True,
        )
        yield Running(node, authority, issuer)


def test_a_certificate_says_who_a_client_is(running: Running, tmp_path: Path) -> None:
    assert (running.rest("alice"), running.grpc("alice")) == (200, grpc.StatusCode.OK)
    assert (running.rest("bob"), running.grpc("bob")) == (403, grpc.StatusCode.PERMISSION_DENIED)
    # Without one, and with one that somebody else has signed, the connection does not come about.
    assert running.grpc(None) is grpc.StatusCode.UNAVAILABLE
    assert running.grpc("alice", authority=Authority(tmp_path / "others")) is grpc.StatusCode.UNAVAILABLE


def test_a_token_of_the_login_service_says_who_a_client_is_whatever_their_certificate(running: Running) -> None:
    token = running.issuer.token
    assert (running.rest("bob", token("alice")), running.grpc("bob", token("alice"))) == (200, grpc.StatusCode.OK)
    assert (running.rest("alice", token("bob")), running.grpc("alice", token("bob"))) == (
        403,
        grpc.StatusCode.PERMISSION_DENIED,
    )
    # Never taken for none. Few: each refusal makes the next one wait. What else can be wrong is tried at the Kafka door.
    assert running.rest("alice", token("alice", now_s=time.time() - 7200)) == 401
    assert running.grpc("alice", token("alice", aud="another")) is grpc.StatusCode.UNAUTHENTICATED
