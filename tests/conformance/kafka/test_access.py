"""Access rules at every door of a real node: who may what, changed while connections are open."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import FETCH_VERSION, RawKafka, batch_of

from headrace.clients.errors import ClientError
from headrace.clients.mlog import BlockingMlogClient
from headrace.clients.rustlog import BlockingRustLogClient
from headrace.errors import HeadraceError
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

SETTINGS = {
    "security.authorization.enable": "true",
    "listener.admin.principal": "User:ANONYMOUS",
    "security.super.users": "User:root",
    "auto.create.topics.enable": "true",
    "listener.rustlog.principal": "User:agent",
    "listener.mlog.principal": "User:agent",
    "listener.logjam.principal": "User:agent",
    **{
        f"listener.{name}.{key}": value
        for name in ("root", "alice", "bob", "carol", "nobody")
        for key, value in (("door", "kafka"), ("listen", "127.0.0.1:0"), ("principal", f"User:{name}"))
    },
}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("access") / "data", SETTINGS) as running:
        with RawKafka(running.endpoints["root"]) as root:
            for topic in ("orders", "secret", "read-by-alice"):
                root.create_topic(topic)
                root.produce(topic, 0, batch_of([b"first"]))
        yield running


def acl(node: NodeProcess, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "headrace", "acl", *arguments, "--local", str(node.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_the_owner_of_the_data_directory_gives_the_first_right(node: NodeProcess) -> None:
    with RawKafka(node.endpoints["alice"]) as alice:
        assert alice.produce("orders", 0, batch_of([b"v"])).error_code == DENIED
        said = acl(node, "allow", "alice", "write", "orders")
        assert said == "User:alice is allowed: WRITE topic orders\n"
        assert alice.produce("orders", 0, batch_of([b"v"])).error_code == 0
        # Served in C by now; and the next change holds for it as well.
        assert alice.produce("orders", 0, batch_of([b"v"])).error_code == 0
        acl(node, "deny", "alice", "write", "ord*")
        assert alice.produce("orders", 0, batch_of([b"v"])).error_code == DENIED
        assert "DENY" not in acl(node, "list", "--principal", "alice", "--json")
        rules = json.loads(acl(node, "list", "--name", "orders", "--json"))
        assert {(each["permission"], each["name"]) for each in rules} == {("allow", "orders"), ("deny", "ord*")}
        assert "denied" in acl(node, "check", "alice", "write", "orders", status=1)
        acl(node, "remove", "alice", "write", "ord*")
        assert alice.produce("orders", 0, batch_of([b"v"])).error_code == 0
        assert "yes" in acl(node, "check", "alice", "describe", "orders")
        assert "no such rule" in acl(node, "remove", "alice", "write", "ord*", status=1)


def test_a_topic_that_may_not_be_seen_looks_like_one_that_is_not_there(node: NodeProcess) -> None:
    with RawKafka(node.endpoints["nobody"]) as nobody:
        names = ["secret", "no-such-topic"]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        rows = nobody.call(request, 12, MetadataResponse).topics
        assert [(row.error_code, row.topic_id, row.partitions) for row in rows] == [(DENIED, bytes(16), [])] * 2
        everything = nobody.call(MetadataRequest(topics=None), 12, MetadataResponse)
        assert everything.topics == []
        for name in names:
            assert nobody.produce(name, 0, batch_of([b"v"])).error_code == DENIED
            assert nobody.fetch(name, 0, 0).error_code == DENIED


def test_a_fetch_that_waits_does_not_outlive_the_right_to_read(node: NodeProcess) -> None:
    acl(node, "allow", "alice", "read", "read-by-alice")
    with RawKafka(node.endpoints["alice"]) as alice, RawKafka(node.endpoints["root"]) as root:
        number = alice.send_fetch("read-by-alice", 0, 1, wait_ms=20_000)
        acl(node, "remove", "alice", "read", "read-by-alice")
        root.produce("read-by-alice", 0, batch_of([b"not for alice"]))
        answer = alice.read_response(FetchResponse, FETCH_VERSION, number)
        found = answer.responses[0].partitions[0]
        assert (found.error_code, bytes(found.records or b"")) == (DENIED, b"")


def test_librdkafka_hears_of_its_rights_and_administers_them(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.endpoints["root"]})
    binding = AclBinding(
        ResourceType.TOPIC,
        "by-librdkafka",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    everything = AclBindingFilter(
        ResourceType.ANY,
        "by-librdkafka",
        ResourcePatternType.ANY,
        "User:bob",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.endpoints["bob"], "message.timeout.ms": 20_000})

    def deliver(topic: str) -> KafkaError | None:
        errors.clear()
        producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
        return errors[0]

    denied = deliver("by-librdkafka-1")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for future in admin.create_acls([binding]).values():
        future.result()
    assert admin.describe_acls(everything).result() == [binding]
    create = AclBinding(
        ResourceType.TOPIC,
        "by-librdkafka",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.CREATE,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([create]).values():
        future.result()
    assert deliver("by-librdkafka-2") is None
    (future,) = admin.delete_acls([everything]).values()
    assert len(future.result()) == 2
    later = deliver("by-librdkafka-2")
    assert later is not None
    assert later.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_group_needs_its_right_too(node: NodeProcess) -> None:
    acl(node, "allow", "bob", "read", "orders")
    settings = {"bootstrap.servers": node.endpoints["bob"], "auto.offset.reset": "earliest"}
    refused = Consumer({**settings, "group.id": "not-bobs"})
    refused.subscribe(["orders"])
    message = refused.poll(20)
    assert message is not None
    assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    refused.close()
    acl(node, "allow", "bob", "read", "orders", "--group", "bobs-*")
    allowed = Consumer({**settings, "group.id": "bobs-1"})
    allowed.subscribe(["orders"])
    message = allowed.poll(20)
    assert message is not None
    assert message.error() is None
    allowed.commit(message, asynchronous=False)
    allowed.close()
    groups = AdminClient({"bootstrap.servers": node.endpoints["alice"]}).list_consumer_groups().result()
    assert groups.valid == []


def test_only_an_administrator_changes_rules(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.endpoints["bob"]})
    binding = AclBinding(
        ResourceType.TOPIC,
        "*",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    (future,) = admin.create_acls([binding]).values()
    with pytest.raises(KafkaException) as raised:
        future.result()
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_rustlog_serves_its_principal(node: NodeProcess) -> None:
    with BlockingRustLogClient(node.endpoints["rustlog"]) as client:
        assert client.list_topics() == []
        for name in ("secret", "no-such-topic"):
            with pytest.raises(ClientError, match=f"Topic '{name}' not found") as refused:
                client.produce(name, [b"v"])
            assert (refused.value.code, refused.value.details) == (404, {"available_topics": []})
        with pytest.raises(ClientError, match="not allowed to DESCRIBE group 'billing'"):
            client.committed("billing", "secret")
        acl(node, "allow", "agent", "read", "billing", "--kind", "group")
        assert client.committed("billing", "secret") is None
        assert client.commit("billing", "secret", offset=1) is False
        acl(node, "allow", "agent", "write", "secret")
        client.produce("secret", [b"v"])
        with pytest.raises(ClientError, match="not allowed to READ topic 'secret'"):
            client.fetch("secret", offset=0)
        acl(node, "remove", "agent", "write", "secret")


def test_mlog_serves_its_principal_and_a_stream_ends_with_the_right(node: NodeProcess) -> None:
    acl(node, "allow", "agent", "read", "orders")
    with BlockingMlogClient([node.endpoints["mlog"]]) as client:
        assert [each.Name for each in client.list_topics()] == ["orders"]
        client.fetch("orders", offset=0)
        with pytest.raises(HeadraceError, match="not allowed to WRITE topic 'orders'"):
            client.produce("orders", b"v")
        with pytest.raises(HeadraceError, match="Topic 'secret' not found"):
            client.fetch("secret", offset=0)
        acl(node, "remove", "agent", "read", "orders")
        with pytest.raises(HeadraceError, match="Topic 'orders' not found"):
            client.fetch("orders", offset=0)


def test_rules_outlive_the_node(node: NodeProcess) -> None:
    acl(node, "allow", "carol", "read", "kept")
    before = acl(node, "list", "--json")
    node.kill()
    node.start()
    assert acl(node, "list", "--json") == before
    assert "kept" in before


def test_the_api_asks_the_same_rules(node: NodeProcess) -> None:
    api = f"http://{node.endpoints['admin']}/api/v1/topics"
    with urllib.request.urlopen(api) as answer:
        assert json.load(answer)["data"]["topics"] == []
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{api}/orders", method="DELETE"))
    assert refused.value.code == 403
    acl(node, "allow", "ANONYMOUS", "describe", "orders")
    with urllib.request.urlopen(api) as answer:
        assert [each["name"] for each in json.load(answer)["data"]["topics"]] == ["orders"]


def test_a_pattern_subscription_finds_no_topic_that_may_not_be_described(node: NodeProcess) -> None:
    """KIP-848: the broker looks topics up for the client, and must not show it those that it may not see."""
    with RawKafka(node.endpoints["root"]) as root:
        for topic in ("pattern-open", "pattern-secret"):
            root.create_topic(topic)
        names = {
            each.topic_id: each.name for each in root.call(MetadataRequest(topics=None), 12, MetadataResponse).topics
        }
    acl(node, "allow", "carol", "read", "pattern-open", "--group", "pattern-group")
    with RawKafka(node.endpoints["carol"]) as carol:

        def beat(epoch: int) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(
                group_id="pattern-group",
                member_id="one",
                member_epoch=epoch,
                rebalance_timeout_ms=60_000 if not epoch else -1,
                subscribed_topic_regex="pattern-.*" if not epoch else None,
                topic_partitions=[] if not epoch else None,
            )
            return carol.call(request, 1, ConsumerGroupHeartbeatResponse)

        joined = beat(0)
        assert joined.error_code == 0
        assert joined.assignment is not None
        assert [names[each.topic_id] for each in joined.assignment.topic_partitions] == ["pattern-open"]
        # Rights that are given while the member is there are found with its next heartbeat.
        acl(node, "allow", "carol", "describe", "pattern-secret")
        later = beat(joined.member_epoch)
        assert later.assignment is not None
        assert len(later.assignment.topic_partitions) == 2
