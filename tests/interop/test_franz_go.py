"""franz-go, a client in Go that shares no code with the others: every way to log in, groups and transactions."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.test_login import PASSWORD, headrace
from tests.support.certificates import Authority
from tests.support.go import go_program
from tests.support.node import NodeProcess, running_node
from tests.support.tokens import Issuer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS_MAX = 90


@dataclass
class Site:
    program: Path
    node: NodeProcess
    authority: Authority
    issuer: Issuer

    def write_and_read(self, listener: str, value: str, *options: str) -> "subprocess.CompletedProcess[str]":
        who = ("-bootstrap", self.node.endpoints[listener], "-ca", str(self.authority.certificate))
        what = ("-topic", "orders", "-group", f"group of {value}", "-value", value)
        return subprocess.run(
            [self.program, *who, *what, *options], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("franz")
    program = go_program("franz", directory)
    authority, issuer = Authority(directory / "certificates"), Issuer(directory)
    certificate, key = authority.issue("server")
    tls = {"tls.certificate": str(certificate), "tls.key": str(key)}
    mutual = {"tls.client.ca": str(authority.certificate), "tls.client.auth": "required"}
    rules = {"tls.principal.rules": json.dumps(["RULE:^CN=(.*?),O=Mill.*$/$1/L"])}
    listeners = {
        "kafka": {**tls, "sasl": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"},
        "mutual": {**tls, **mutual, **rules, "door": "kafka", "listen": "127.0.0.1:0"},
    }
    settings = {
        "security.authorization.enable": "true",
        **issuer.settings,
        **{f"listener.{name}.{key}": value for name, keys in listeners.items() for key, value in keys.items()},
    }
    with running_node(directory / "data", settings) as node:
        for user in ("alice", "bob"):
            headrace(node, "user", "create", user)
        headrace(node, "acl", "allow", "alice", "all", "orders", "--group", "*")
        headrace(node, "acl", "allow", "alice", "all", "*", "--kind", "transactional-id")
        yield Site(program, node, authority, issuer)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in_with_a_password(site: Site, mechanism: str) -> None:
    who = ("-mechanism", mechanism, "-user", "alice", "-password")
    done = site.write_and_read("kafka", mechanism, *who, PASSWORD)
    assert done.returncode == 0, done.stderr
    refused = site.write_and_read("kafka", "wrong", *who, "guessed")
    assert refused.returncode == 1
    assert "not written" in refused.stderr


def test_it_logs_in_with_a_token(site: Site) -> None:
    token = ("-mechanism", "OAUTHBEARER", "-password")
    done = site.write_and_read("kafka", "by a token", *token, site.issuer.token("alice"))
    assert done.returncode == 0, done.stderr
    assert site.write_and_read("kafka", "x", *token, site.issuer.token("alice", aud="others")).returncode == 1


def test_it_is_known_by_its_certificate(site: Site) -> None:
    certificate, key = site.authority.issue("alice")
    done = site.write_and_read("mutual", "by a certificate", "-certificate", str(certificate), "-key", str(key))
    assert done.returncode == 0, done.stderr
    assert site.write_and_read("mutual", "by none").returncode == 1


def test_who_has_no_right_is_told_so(site: Site) -> None:
    done = site.write_and_read(
        "kafka", "not allowed", "-mechanism", "SCRAM-SHA-256", "-user", "bob", "-password", PASSWORD
    )
    assert done.returncode == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in done.stderr


def test_transactions_are_committed_and_read(site: Site) -> None:
    who = ("-mechanism", "SCRAM-SHA-512", "-user", "alice", "-password", PASSWORD, "-transactional-id", "t")
    offsets = []
    for number in range(3):
        done = site.write_and_read("kafka", f"transaction {number}", *who)
        assert done.returncode == 0, done.stderr
        offsets.append(int(done.stdout))
    assert offsets == sorted(set(offsets))
