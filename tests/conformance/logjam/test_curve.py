"""CURVE: who agents are by their keys, and that nobody else gets in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from tests.conformance.logjam.test_door import meta
from tests.interop.test_login import headrace
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.zmq_agent import Keys, Peer

ACCEPTED = b"202 Accepted"
NO_ANSWER_MS = 1_500


class Secured:
    def __init__(self, directory: Path) -> None:
        self.server, self.alice, self.bob, self.stranger = Keys(), Keys(), Keys(), Keys()
        self.clients = directory / "clients"
        (directory / "server.key").write_bytes(self.server.secret + b"\n")
        self.allow(("alice", self.alice), ("bob", self.bob))
        self.settings = {
            "security.authorization.enable": "true",
            "logjam.heartbeat.interval.ms": "200",
            "listener.logjam.curve.key": str(directory / "server.key"),
            "listener.logjam.curve.clients": str(self.clients),
            "listener.logjam.principal": "User:watchers",
        }
        self.node: NodeProcess

    def allow(self, *clients: tuple[str, Keys]) -> None:
        self.clients.write_text("".join(f"{keys.public.decode()} User:{name}\n" for name, keys in clients))

    def peer(self, kind: int, socket: str, keys: Keys | None, subscribe: bytes | None = None) -> Peer:
        where = self.node.endpoints[f"logjam_{socket}"]
        return Peer(kind, where, keys=keys, server=self.server.public, subscribe=subscribe, linger_ms=0)

    def ask(self, keys: Keys | None, app_env: str, timeout_ms: int = 60_000) -> bytes | None:
        with self.peer(zmq.DEALER, "router", keys) as dealer:
            dealer.send(b"", app_env.encode(), b"logs", b"{}", meta())
            answer = dealer.receive(timeout_ms)
            return None if answer is None else answer[-1]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("curve")
    found = Secured(directory)
    with running_node(directory / "data", found.settings) as node:
        found.node = node
        headrace(node, "acl", "allow", "alice", "write", "logjam-*")
        headrace(node, "acl", "allow", "alice", "create", "logjam-*")
        yield found


def test_an_agent_is_who_its_key_is(secured: Secured) -> None:
    assert secured.ask(secured.alice, "shop-test") == ACCEPTED
    refused = secured.ask(secured.bob, "shop-test")
    assert refused is not None
    assert refused != ACCEPTED


def test_messages_of_one_connection_do_not_lend_their_rights_to_another(secured: Secured) -> None:
    with (
        secured.peer(zmq.DEALER, "router", secured.alice) as alice,
        secured.peer(zmq.DEALER, "router", secured.bob) as bob,
    ):
        for _ in range(20):
            assert alice.ask(b"", b"lend-test", b"logs", b"{}", meta())[-1] == ACCEPTED
            assert bob.ask(b"", b"lend-test", b"logs", b"{}", meta())[-1] != ACCEPTED


@pytest.mark.parametrize("who", ["a key that is nobody's", "no key"])
def test_nobody_else_gets_in(secured: Secured, who: str) -> None:
    assert secured.ask(secured.alice, "shop-test") == ACCEPTED
    keys = secured.stranger if who.startswith("a key") else None
    assert secured.ask(keys, "shop-test", NO_ANSWER_MS) is None
    with secured.peer(zmq.SUB, "pub", keys, subscribe=b"") as watcher:
        assert watcher.receive(NO_ANSWER_MS) is None


def test_subscribers_need_a_key(secured: Secured) -> None:
    with secured.peer(zmq.SUB, "pub", secured.bob, subscribe=b"heartbeat") as watcher:
        assert watcher.next()[0] == b"heartbeat"


def test_a_key_that_is_taken_away_is_nobodys_on_an_open_connection(tmp_path: Path) -> None:
    found = Secured(tmp_path)
    with running_node(tmp_path / "data", found.settings) as node:
        found.node = node
        headrace(node, "acl", "allow", "alice", "all", "*")
        with found.peer(zmq.DEALER, "router", found.alice) as alice:
            assert alice.ask(b"", b"shop-test", b"logs", b"{}", meta())[-1] == ACCEPTED
            found.allow(("bob", found.bob))

            def is_ignored() -> bool:
                alice.send(b"", b"shop-test", b"logs", b"{}", meta())
                return alice.receive(NO_ANSWER_MS) is None

            eventually(is_ignored, 60, "still taken")
        secret = found.server.secret
        for path in [node.log_path, *(each for each in node.data_dir.rglob("*") if each.is_file())]:
            assert secret not in path.read_bytes(), path
