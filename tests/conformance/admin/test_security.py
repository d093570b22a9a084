"""A node that asks for rights: every route as nobody, as a reader and as an administrator; users and access rules by API and console."""

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.api_requests import ask_rest
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka

from headrace.admin.api.table import ROUTES
from headrace.admin.rights import Resource
from headrace.broker.access.intents import rules_of
from headrace.broker.access.rules import Rule
from headrace.broker.access.service import everything_for
from headrace.broker.access.words import Principal
from headrace.cli.kafka_acls import AclAdmin

CONSOLE = Principal("console")
SETTINGS = {
    "security.authorization.enable": "true",
    "security.super.users": "User:ANONYMOUS",
    "listener.admin.principal": str(CONSOLE),
    "listener.secret.door": "kafka",
    "listener.secret.listen": "127.0.0.1:0",
    "listener.secret.sasl": "SCRAM-SHA-256",
}
LOOKS = [
    ("describe", "cluster", ""),
    ("describe-configs", "cluster", ""),
    ("read", "topic", "*"),
    ("describe-configs", "topic", "*"),
    ("read", "group", "*"),
    ("describe", "transactional-id", "*"),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("secured") / "data", SETTINGS) as started:
        with RawKafka(started.kafka) as client:
            client.create_topic("x")
        yield started


@pytest.fixture
def become(node: NodeProcess) -> Iterator[Callable[[list[Rule]], None]]:
    """Gives whoever uses the API these rights, and no others; in force when it returns."""
    given: list[Rule] = []

    def give(rules: list[Rule]) -> None:
        rights = AclAdmin(node.kafka)
        rights.delete(given)
        given[:] = rules
        rights.create(rules)

    yield give
    give([])


@pytest.fixture
def administrator(become: Callable[[list[Rule]], None]) -> None:
    become(everything_for(CONSOLE))


@pytest.fixture
def site(node: NodeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}", timeout=60, follow_redirects=True) as client:
        yield client


def denied(api: httpx.Client) -> set[str]:
    answers = {route.name: ask_rest(route, api) for route in ROUTES}
    assert not [answer for answer in answers.values() if answer.status_code == 500]
    return {name for name, answer in answers.items() if answer.status_code == 403}


def test_every_route_as_nobody_as_a_reader_and_as_an_administrator(
    api: httpx.Client, become: Callable[[list[Rule]], None]
) -> None:
    lists = {
        route.name for route in ROUTES if route.right.field is None and route.right.resource is not Resource.CLUSTER
    }
    changes = {route.name for route in ROUTES if route.is_change} - {"SearchTopic", "ResetOffset"}
    assert denied(api) == {route.name for route in ROUTES} - lists
    for name in lists:
        route = next(each for each in ROUTES if each.name == name)
        assert ask_rest(route, api).json()["data"]["total"] == 0, name
    become([rule for verb, kind, name in LOOKS for rule in rules_for(verb, kind, name)])
    assert denied(api) == changes
    assert api.get("/topics").json()["data"]["total"] == 1
    become(everything_for(CONSOLE))
    assert denied(api) == set()


def rules_for(verb: str, kind: str, name: str) -> list[Rule]:
    return rules_of("console", verb, name, kind=kind, group=None, host="*", is_denied=False)


def topics_of(node: NodeProcess, user: str, password: str) -> set[str]:
    """What a user sees who logs in with a client that is not ours."""
    client = AdminClient(
        {
            "bootstrap.servers": node.endpoints["secret"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    return set(client.list_topics(timeout=10).topics)


@pytest.mark.usefixtures("administrator")
def test_a_user_is_made_given_rights_and_deleted(api: httpx.Client, node: NodeProcess) -> None:
    user = {"user": "alice", "password": "first"}
    assert api.post("/users", params={"dry_run": "true"}, json=user).json()["data"]["is_dry_run"] is True
    assert api.get("/users/alice").status_code == 404
    assert api.post("/users", json=user).status_code == 200
    assert api.post("/users", json=user).json()["error"]["reason"] == "DUPLICATE_RESOURCE"
    assert topics_of(node, "alice", "first") == set()
    rule = {"principal": "alice", "operation": "read", "name": "x"}
    assert api.post("/acls", params={"dry_run": "true"}, json=rule).status_code == 200
    question = {**rule, "host": "10.1.2.3"}
    assert api.get("/acls/check", params=question).json()["data"]["is_allowed"] is False
    assert api.post("/acls", json=rule).status_code == 200
    assert api.get("/acls/check", params=question).json()["data"]["reasons"] == ["User:alice is allowed READ LITERAL x"]
    eventually(lambda: topics_of(node, "alice", "first") == {"x"}, 60, "the rule is not in force")
    (shown,) = api.get("/users/alice").json()["data"]["acls"]
    assert (shown["principal"], shown["permission"]) == ("User:alice", "allow")
    assert "first" not in api.get("/users/alice").text
    assert api.request("DELETE", "/acls", params=rule).status_code == 200
    assert api.request("DELETE", "/acls", params=rule).status_code == 404
    assert api.post("/users/alice/password", json={"password": "second"}).status_code == 200
    assert topics_of(node, "alice", "second") == set()
    assert api.delete("/users/alice").status_code == 200
    assert api.delete("/users/alice").status_code == 404
    assert api.post("/users/alice/password", json={"password": "third"}).status_code == 404
    with pytest.raises(KafkaException):
        topics_of(node, "alice", "second")


@pytest.mark.usefixtures("administrator")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"operation": "write", "kind": "group"}, "nobody can write a group"),
        ({"operation": "read", "name": ""}, "name"),
        ({"operation": "read", "host": "somewhere"}, "neither *, an address nor a network"),
        ({"operation": "fly"}, "operation"),
    ],
)
def test_a_rule_that_would_never_hold_is_refused(
    api: httpx.Client,
    fields: dict[str, str],
    complaint: str,
) -> None:
    answer = api.post("/acls", json={"principal": "alice", "name": "x", **fields})
    assert answer.status_code == 400
    assert complaint in answer.json()["error"]["message"]


@pytest.mark.usefixtures("administrator")
def test_the_console_makes_users_and_rules_and_says_who_may_what(site: httpx.Client) -> None:
    def post(path: str, **fields: str) -> httpx.Response:
        found = re.search(r'name="token" value="([0-9a-f]+)"', site.get("/security/users").text)
        assert found is not None
        return site.post(path, data={"token": found[1], **fields})

    different = post("/security/users", user="bob", password="one", again="two")
    assert (different.status_code, "two different passwords" in different.text) == (400, True)
    assert "User bob created." in post("/security/users", user="bob", password="one", again="one").text
    made = post("/security", who="bob", verb="read", kind="topic", name="orders-*", group="billing", permission="allow")
    assert "bob may read topic orders-*." in made.text
    half = post("/security", who="bob", verb="alter", kind="transactional-id", name="t", group="other")
    assert half.status_code == 400
    asked = {"who": "bob", "verb": "read", "kind": "topic", "name": "orders-7"}
    assert "<b>Yes</b>" in site.get("/security", params=asked).text
    assert "<b>No</b>" in site.get("/security", params={**asked, "verb": "write"}).text
    page = site.get("/security/users/bob").text
    assert page.count("<li>") == 2
    row = {"principal": "User:bob", "permission": "allow", "operation": "read", "host": "*"}
    gone = post("/security/remove", **row, kind="topic", name="orders-", pattern="prefixed")
    assert "taken back" in gone.text
    assert "<b>No</b>" in site.get("/security", params=asked).text
    assert post("/security/users/bob/remove", typed="bo").status_code == 400
    assert "deleted" in post("/security/users/bob/remove", typed="bob").text


@pytest.mark.usefixtures("administrator")
def test_a_quota_is_set_listed_and_taken_back_by_api_and_console(api: httpx.Client, site: httpx.Client) -> None:
    whose = {"user": "alice", "client": "*"}
    dry = api.post("/quotas", params={"dry_run": "true"}, json={**whose, "produce_bytes": 1000})
    assert dry.json()["data"]["is_dry_run"] is True
    assert api.get("/quotas").json()["data"]["total"] == 0
    assert api.post("/quotas", json={**whose, "produce_bytes": 1000}).status_code == 200
    changed = api.post("/quotas", json={**whose, "fetch_bytes": 2000}).json()["data"]["quota"]
    assert (changed["produce_bytes"], changed["fetch_bytes"], changed["connections"]) == (1000, 2000, None)
    assert api.post("/quotas", json={"ip": "10.1", "connections": 5}).status_code == 400
    assert api.post("/quotas", json={**whose, "connections": 5}).status_code == 400
    assert api.post("/quotas", json=whose).status_code == 400
    page = site.get("/security/quotas").text
    assert "user alice, client whoever has none" in page
    found = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert found is not None
    gone = site.post("/security/quotas/remove", data={"token": found[1], **whose})
    assert "The quota of user alice and client * is taken back." in gone.text
    assert api.request("DELETE", "/quotas", params=whose).status_code == 404
    made = site.post("/security/quotas", data={"token": found[1], "ip": "10.0.0.7", "connections": "5", "user": ""})
    assert "The quota of ip 10.0.0.7 is set." in made.text
    assert api.request("DELETE", "/quotas", params={"ip": "10.0.0.7"}).status_code == 200


def test_whoever_may_not_look_sees_no_page(site: httpx.Client) -> None:
    for path in ("/security", "/security/users", "/cluster", "/storage"):
        answer = site.get(path)
        assert answer.status_code == 403
        assert "may not DESCRIBE" in answer.text
