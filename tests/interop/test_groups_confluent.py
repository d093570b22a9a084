"""Consumer groups through confluent-kafka (librdkafka), both group protocols, against a real node."""

import time
from collections import Counter

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from tests.support.group_member import QUICK_GROUPS, GroupMember, are_shared_evenly, poll_until, produce
from tests.support.node import NodeProcess, eventually, running_node

pytestmark = pytest.mark.requirement("R3.10", "X4.1")
NODE_SETTINGS = QUICK_GROUPS
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def admin(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.kafka})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_group_grows_and_shrinks_without_losing_records(node: NodeProcess, topic: str, protocol: str) -> None:
    values = [b"%04d" % index for index in range(600)]
    produce(node, topic, values[:200])
    first = GroupMember(node, topic, protocol)
    poll_until([first], lambda: len(first.seen) == 200 and len(first.partitions) == 4, 20, "one reads all")
    first.consumer.commit(asynchronous=False)
    second = GroupMember(node, topic, protocol)
    both = [first, second]
    poll_until(both, lambda: are_shared_evenly(both), 20, "two share")
    produce(node, topic, values[200:400])
    poll_until(both, lambda: len(first.seen) + len(second.seen) >= 400, 20, "both read")
    for member in both:
        member.consumer.commit(asynchronous=False)
    first.consumer.close()
    poll_until([second], lambda: len(second.partitions) == 4, 20, "the one left takes over")
    produce(node, topic, values[400:])
    poll_until([second], lambda: len(first.seen) + len(second.seen) >= 600, 20, "it reads the rest")
    second.consumer.commit(asynchronous=False)
    second.consumer.close()
    assert Counter(first.seen + second.seen) == Counter(values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_survive_kill_of_the_node(tmp_path_factory: pytest.TempPathFactory, protocol: str) -> None:
    with running_node(tmp_path_factory.mktemp("killed") / "data", {"group.initial.rebalance.delay.ms": 0}) as node:
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(10)
        produce(node, "t", [b"%d" % index for index in range(100)])
        first = GroupMember(node, "t", protocol)
        poll_until([first], lambda: len(first.seen) == 100, 20, "all are read")
        first.consumer.commit(asynchronous=False)
        first.consumer.close()
        node.kill()
        node.start()
        produce(node, "t", [b"new"])
        again = GroupMember(node, "t", protocol)
        poll_until([again], lambda: bool(again.seen), 20, "the group goes on")
        again.consumer.close()
        assert again.seen == [b"new"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_go_on_through_a_kill_of_the_node(tmp_path_factory: pytest.TempPathFactory, protocol: str) -> None:
    """The coordinator knows its members again: nobody rejoins from nothing, nothing is read twice."""
    settings = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 200}
    with running_node(tmp_path_factory.mktemp("alive") / "data", settings) as node:
        node.settings["listen.kafka"] = node.kafka
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(10)
        # A node that takes long to come back must not end the session, which only classic members choose themselves.
        patience = {"session.timeout.ms": 60_000} if protocol == "classic" else {}
        members = [GroupMember(node, "t", protocol, **patience) for _ in range(2)]
        poll_until(members, lambda: are_shared_evenly(members), 20, "two share")
        values = [b"%d" % index for index in range(200)]
        produce(node, "t", values[:100])
        poll_until(members, lambda: sum(len(each.seen) for each in members) == 100, 20, "both read")
        for member in members:
            member.consumer.commit(asynchronous=False)
        node.kill()
        node.start()
        produce(node, "t", values[100:])
        poll_until(members, lambda: sum(len(each.seen) for each in members) >= 200, 40, "both go on")
        seen = members[0].seen + members[1].seen
        for member in members:
            member.consumer.close()
        assert Counter(seen) == Counter(values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_partitions_and_topics_are_found_by_pattern(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    member = GroupMember(node, f"^{topic}.*", protocol, **{"topic.metadata.refresh.interval.ms": 500})
    poll_until([member], lambda: len(member.partitions) == 4, 20, "the pattern matches")
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(10)
    admin.create_topics([NewTopic(f"{topic}-more", 1, 1)])[f"{topic}-more"].result(10)
    poll_until([member], lambda: len(member.consumer.assignment()) == 7, 20, "what is new is found")
    member.consumer.close()


def test_static_member_returns_without_a_rebalance(node: NodeProcess, topic: str) -> None:
    rebalances: list[str] = []
    stays = GroupMember(node, topic, "classic", **{"group.instance.id": "stays", "client.id": "stays"})
    leaves = GroupMember(node, topic, "classic", **{"group.instance.id": "leaves"})
    poll_until([stays, leaves], lambda: are_shared_evenly([stays, leaves]), 20, "two share")
    stays.consumer.subscribe([topic], on_revoke=lambda *_: rebalances.append("revoked"))
    poll_until([stays, leaves], lambda: are_shared_evenly([stays, leaves]), 20, "two share")
    rebalances.clear()
    share = leaves.partitions
    leaves.consumer.close()
    back = GroupMember(node, topic, "classic", **{"group.instance.id": "leaves"})
    poll_until([stays, back], lambda: back.partitions == share, 20, "the share is back")
    assert rebalances == []
    stays.consumer.close()
    back.consumer.close()


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
def test_assignment_strategies_of_the_client_work(node: NodeProcess, topic: str, strategy: str) -> None:
    members = [GroupMember(node, topic, "classic", **{"partition.assignment.strategy": strategy}) for _ in range(3)]
    poll_until(members, lambda: are_shared_evenly(members), 20, "three share")
    for member in members:
        member.consumer.close()


def test_admin_client_sees_and_changes_groups(node: NodeProcess, admin: AdminClient, topic: str) -> None:
    produce(node, topic, [b"x"] * 10)
    member = GroupMember(node, topic, "classic")
    poll_until([member], lambda: len(member.seen) == 10, 20, "all are read")
    member.consumer.commit(asynchronous=False)
    group = f"group-of-{topic}"
    listed = {each.group_id: each for each in admin.list_consumer_groups().result().valid}
    assert listed[group].state.name == "STABLE"
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert len(described.members[0].assignment.topic_partitions) == 4
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result(10)
    member.consumer.close()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(4)])
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(10)
    assert sum(max(each.offset, 0) for each in offsets.topic_partitions) == 10
    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index, 0) for index in range(4)])
    admin.alter_consumer_group_offsets([reset])[group].result(10)
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(10)
    assert [each.offset for each in offsets.topic_partitions] == [0, 0, 0, 0]
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert all(future.result(10).offset >= 0 for future in ends.values())
    admin.delete_consumer_groups([group])[group].result(10)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_fifty_members_rebalance_within_two_seconds(node: NodeProcess, admin: AdminClient) -> None:
    """Fifty members share 51 partitions; one more joins, and one of them has to give one up."""
    admin.create_topics([NewTopic("fifty", 51, 1)])["fifty"].result(10)
    members = [GroupMember(node, "fifty", "classic") for _ in range(50)]

    def has_settled() -> bool:
        for member in members:
            member.consumer.poll(0)
        shares = [len(member.partitions) for member in members]
        return min(shares) >= 1 and sum(shares) == 51

    eventually(has_settled, 30, "fifty members did not settle")
    started = time.monotonic()
    members.append(GroupMember(node, "fifty", "classic"))
    eventually(has_settled, 30, "the rebalance did not end")
    elapsed = time.monotonic() - started
    for member in members:
        member.consumer.close()
    assert elapsed < 2, f"the rebalance took {elapsed:.1f} s"
