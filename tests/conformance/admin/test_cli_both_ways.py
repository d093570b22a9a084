"""Every verb of the administrative commands, over Kafka's protocol and over REST, against one node: the same words, the same exit status."""

import importlib
import json
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka

from headrace.cli.main import main

NOUNS = ("user", "acl", "quota", "topic", "group", "transaction")
NAMES = {"kafka": "mine-k", "rest": "mine-r"}
"""What a way makes, changes and removes: of one length, so that tables have the same width."""
SETTINGS = {
    "tier.upload.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 3,
    "security.authorization.enable": "true",
    "security.super.users": "User:ANONYMOUS,User:root",
    "security.plain.insecure": "true",
    "listener.low.door": "kafka",
    "listener.low.listen": "127.0.0.1:0",
    "listener.low.principal": "User:nobody",
}
STEPS = """
user create NAME --password-file PASSWORD
user create NAME --password-file PASSWORD
user create NAME-super --super --password-file PASSWORD
user list
user list --json
user password NAME --password-file PASSWORD
user password NAME-not --password-file PASSWORD
user delete NAME
user delete NAME
user delete NAME-super --json
acl allow NAME read shared --group readers
acl allow NAME write 'orders-*' --json
acl deny NAME all '*' --host 10.0.0.0/8
acl allow NAME alter --kind cluster
acl allow NAME alter-configs --kind group x
acl allow NAME read ''
acl list
acl list --json
acl list --principal NAME
acl list --kind cluster
acl list --name orders-1 --kind topic
acl check NAME read shared
acl check NAME write shared --json
acl check NAME write orders-7
acl check NAME write orders-7 --host 10.1.2.3
acl check NAME alter --kind cluster
acl remove NAME read shared --group readers
acl remove NAME read shared --group readers
acl remove NAME all '*' --host 10.0.0.0/8 --json
acl remove NAME-not all
quota set --user NAME --produce 5MB --consume 20MiB
quota set --user NAME --requests 12.5 --json
quota set --user NAME --client '*' --produce 1k
quota set --ip 127.0.0.9 --connections 20
quota set --user NAME
quota set --produce 5MB
quota set --user NAME --produce 5XB
quota set --user NAME --produce 0
quota set --user NAME --connections 3
quota set --user NAME --ip 127.0.0.9 --connections 3
quota set --ip nowhere --connections 3
quota list
quota list --json
quota remove --user NAME
quota remove --user NAME
quota remove --user NAME --client '*' --json
topic create NAME
topic create NAME
topic create NAME --if-not-exists --json
topic create NAME-two --partitions 2 --replication-factor 1 --config retention.ms=60000 --json
topic create NAME-three --replication-factor 3
topic create NAME-bad --config retention.ms=soon
topic create NAME-bad --config retention.mss=1
topic create 'not a name'
topic create NAME.dotted
topic create NAME_dotted
topic list
topic list --internal --json
topic describe shared
topic describe shared --json
topic describe shared --partition 1
topic describe shared --partition 9
topic describe NAME-not
topic alter NAME --set retention.ms=70000 --set durability=object
topic alter NAME --unset durability --partitions 5 --json
topic alter NAME --partitions 4
topic alter NAME --set retention.ms=soon
topic alter NAME --set retention.mss=1
topic alter NAME --unset retention.mss
topic alter NAME --unset segment.bytes
topic alter NAME --set retention.ms=1 --unset retention.ms
topic alter NAME
topic alter NAME-not --partitions 3
topic alter NAME-not --set retention.ms=1
topic alter __consumer_offsets --partitions 99
topic delete NAME NAME-two
topic delete NAME
topic delete NAME NAME.dotted --if-exists --json
topic delete __consumer_offsets
group list
group list --json
group describe readers
group describe readers --json
group describe busy
group describe busy --json
group describe NAME-not
group reset readers --to-earliest
group reset readers --shift -1 --json
group reset readers --to-time 2020-01-01T00:00:00
group reset NAME --topic shared --to-latest --execute
group reset NAME --shift -1 --execute --json
group reset NAME --to-offset 1 --topic shared
group reset NAME-not --to-earliest
group reset readers --to-earliest --topic NAME-not
group reset readers
group reset busy --to-earliest --topic shared
group reset busy --to-earliest --topic shared --execute
group delete busy
group delete NAME
group delete NAME --json
transaction list
transaction list --open --json
transaction describe open-already
transaction describe open-already --json
transaction describe NAME-not
transaction abort NAME
transaction abort NAME --json
transaction abort NAME-not
"""
DENIED = """
user create NAME --password-file PASSWORD
user list
user password NAME --password-file PASSWORD
user delete NAME
acl allow NAME read shared
acl deny NAME read shared
acl remove NAME read shared
acl list
acl check NAME read shared
quota set --user NAME --produce 5MB
quota remove --user NAME
quota list
topic create NAME-denied
topic list
topic describe shared
topic alter shared --set retention.ms=1
topic alter shared --partitions 9
topic delete shared
group list
group describe readers
group reset readers --topic shared --to-earliest --execute
group delete readers
transaction list
transaction describe open-already
transaction abort open-already
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


class Ways:
    """Runs commands in this process: a hundred interpreters would take minutes to start."""

    def __init__(self, node: NodeProcess, tokens: dict[str, str], capsys: pytest.CaptureFixture[str], password: Path):
        self._node = node
        self._tokens = tokens
        self._capsys = capsys
        self._password = password

    def run(self, *arguments: str) -> Said:
        status: object = 0
        try:
            main(arguments)
        except SystemExit as error:
            status = error.code
        found = self._capsys.readouterr()
        assert isinstance(status, int | None)
        return Said(status or 0, found.out, found.err)

    def take(self, step: str, way: str, *, who: str, listener: str) -> Said:
        """What was said; where the step has a name of the way's own, with that name left out."""
        words = shlex.split(step.replace("NAME", NAMES[way]).replace("PASSWORD", str(self._password)))
        site = self._node.endpoints["admin"]
        if way == "rest":
            (token := self._password.with_name("token")).write_text(self._tokens[who])
            # No Kafka door is asked: the one named is nobody's.
            words += ["--api", f"http://{site}", "--token-file", str(token), "--bootstrap", "127.0.0.1:1"]
        else:
            words += ["--bootstrap", self._node.endpoints[listener]]
            words += ["--admin", site] if words[:2] == ["topic", "describe"] else []
        said = self.run(*words)
        if "NAME" not in step:
            return said
        return Said(said.status, said.out.replace(NAMES[way], "NAME"), said.err.replace(NAMES[way], "NAME"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("ways") / "data", SETTINGS) as started:
        with RawKafka(started.kafka) as client:
            client.create_topic("shared", 2)
        with readers_and_writers(started):
            yield started


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    """Filled by the first test that has run a command."""
    return {}


@pytest.fixture
def ways(node: NodeProcess, tokens: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ways:
    (tmp_path / "password").write_text("wood and water 7391\n")
    made = Ways(node, tokens, capsys, tmp_path / "password")
    if not tokens:
        here = ("--local", str(node.data_dir))
        for user in ("root", "nobody"):
            assert made.run("user", "create", user, "--password-file", str(tmp_path / "password"), *here).status == 0
            tokens[user] = made.run("user", "token", user, *here).out.strip()
    return made


@contextmanager
def readers_and_writers(node: NodeProcess) -> Iterator[None]:
    """Records that are uploaded, a group that has read some, one that is reading, and transactions that are open."""
    place = {"bootstrap.servers": node.kafka}
    writer = Producer(place)
    for number in range(5):
        writer.produce("shared", b"x", partition=number % 2)
    writer.flush()
    quiet = Consumer({**place, "group.id": "readers", "enable.auto.commit": False})
    quiet.commit(offsets=[TopicPartition("shared", 0, 2)], asynchronous=False)
    quiet.close()
    patient = {**place, "transaction.timeout.ms": 900_000}
    open_ones = [Producer({**patient, "transactional.id": each}) for each in ("open-already", *NAMES.values())]
    for each in open_ones:
        each.init_transactions(30)
        each.begin_transaction()
        each.produce("shared", b"in a transaction", partition=0)
        each.flush()
    with closing(Consumer({**place, "group.id": "busy", "client.id": "reader-1"})) as busy:
        busy.subscribe(["shared"])
        eventually(lambda: busy.poll(0.1) is not None or bool(busy.assignment()), 60, "nothing is assigned")
        eventually(lambda: not exposed(node), 60, "something is not uploaded")
        yield


def exposed(node: NodeProcess) -> bool:
    with socket_client(node) as owner:
        return bool(owner.get("/tier/exposure").json()["data"]["total"])


def socket_client(node: NodeProcess) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(node.data_dir / "admin.sock"))
    return httpx.Client(transport=transport, base_url="http://localhost/api/v1")


def compare(ways: Ways, text: str, *, who: str, listener: str) -> dict[str, Said]:
    """What both ways said, by step; of a step that is taken twice, the first time."""
    told: dict[str, Said] = {}
    apart = []
    for step in steps_of(text):
        by_kafka, by_rest = (ways.take(step, way, who=who, listener=listener) for way in NAMES)
        told.setdefault(step, by_kafka)
        if by_kafka != by_rest:
            apart.append(f"{step}\n    {by_kafka}\n    {by_rest}")
    assert not apart, "\n".join(apart)
    return told


def test_every_verb_says_the_same_by_either_way(ways: Ways) -> None:
    told = compare(ways, STEPS, who="root", listener="kafka")
    assert {said.status for said in told.values()} == {0, 1}
    # What the steps are meant to show was shown: failures would be alike, too.
    assert "SCRAM-SHA-512" in told["user list"].out
    assert json.loads(told["topic describe shared --json"].out)["partitions"][0]["end"] == 6
    made = {row["name"]: row["partitions"] for row in json.loads(told["topic list --internal --json"].out)}
    assert made["mine-k"] == made["mine-r"] == SETTINGS["num.partitions"]
    assert "reader-1" in told["group describe busy"].out
    assert [row["offset"] for row in json.loads(told["group reset readers --shift -1 --json"].out)] == [1, 0]
    assert "--topic" in told["group reset NAME-not --to-earliest"].err
    assert "has members" in told["group reset busy --to-earliest --topic shared"].err
    assert "shared-0" in told["transaction describe open-already"].out
    assert "its producer is fenced" in told["transaction abort NAME"].out


def test_who_may_not_is_told_so_in_the_same_words(ways: Ways) -> None:
    told = compare(ways, DENIED, who="nobody", listener="low")
    assert "--local DATA_DIR" in told["acl list"].err
    assert "not allowed" in told["topic delete shared"].err
    assert ways.take("topic describe shared", "kafka", who="root", listener="kafka").status == 0


def test_every_verb_is_among_the_steps() -> None:
    by_api_only = {("user", verb) for verb in ("token", "tokens", "revoke")}
    there = set()
    for noun in NOUNS:
        app = importlib.import_module(f"headrace.cli.commands.{noun}").app
        there |= {(noun, name) for name in app if not name.startswith("-")}
    for text in (STEPS, DENIED):
        assert {tuple(step.split()[:2]) for step in steps_of(text)} == there - by_api_only


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("topic create NAME --door rustlog", "--door rustlog is reached at --address only"),
        ("topic list --door rustlog", "--door rustlog is reached at --address only"),
        ("topic describe shared --door rustlog", "--door rustlog is reached at --address only"),
        ("topic delete shared --local DIRECTORY", "give --api or --local, not both"),
        ("acl allow NAME all '*' --local DIRECTORY", "give --api or --local, not both"),
    ],
)
def test_what_rest_cannot_do_is_refused_and_changes_nothing(
    ways: Ways, node: NodeProcess, words: str, reason: str
) -> None:
    looks = ("topic list --json", "acl list --json")
    before = [ways.take(step, "kafka", who="root", listener="kafka") for step in looks]
    said = ways.take(words.replace("DIRECTORY", str(node.data_dir)), "rest", who="root", listener="kafka")
    assert (said.status, reason in said.err) == (1, True), said
    assert [ways.take(step, "kafka", who="root", listener="kafka") for step in looks] == before


def test_the_owner_of_the_data_directory_is_not_asked_who_they_are(ways: Ways, node: NodeProcess) -> None:
    here = ("--local", str(node.data_dir), "--json", "--bootstrap", "127.0.0.1:1")
    assert "shared" in ways.run("topic", "list", *here).out
    assert "readers" in ways.run("group", "list", *here).out
    assert "open-already" in ways.run("transaction", "list", *here).out


def steps_of(text: str) -> list[str]:
    return text.strip().splitlines()
