"""Consumer groups through confluent-kafka (librdkafka), both group protocols, against a real node."""

import time
from collections import Counter

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewPartitions, NewTopic, OffsetSpec
from tests.support.group_member import PATIENCE_S, QUICK_GROUPS, GroupMember, are_shared_evenly, poll_until, produce
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.ports import kept_port
from tests.support.raw_kafka import LATEST, RawKafka

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
    poll_until([first], lambda: len(first.seen) == 200 and len(first.partitions) == 4, "one reads all")
    first.consumer.commit(asynchronous=False)
    second = GroupMember(node, topic, protocol)
    both = [first, second]
    poll_until(both, lambda: are_shared_evenly(both), "two share")
    produce(node, topic, values[200:400])
    poll_until(both, lambda: len(first.seen) + len(second.seen) >= 400, "both read")
    for member in both:
        member.consumer.commit(asynchronous=False)
    first.consumer.close()
    poll_until([second], lambda: len(second.partitions) == 4, "the one left takes over")
    produce(node, topic, values[400:])
    poll_until([second], lambda: len(first.seen) + len(second.seen) >= 600, "it reads the rest")
    second.consumer.commit(asynchronous=False)
    second.consumer.close()
    assert Counter(first.seen + second.seen) == Counter(values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_survive_kill_of_the_node(tmp_path_factory: pytest.TempPathFactory, protocol: str) -> None:
    settings = {**QUICK_GROUPS, "offsets.topic.num.partitions": 1}
    with running_node(tmp_path_factory.mktemp("killed") / "data", settings) as node:
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(PATIENCE_S)
        produce(node, "t", [b"%d" % index for index in range(100)])
        first = GroupMember(node, "t", protocol)
        poll_until([first], lambda: len(first.seen) == 100, "all are read")
        first.consumer.commit(asynchronous=False)
        before = end_of_offsets(node)
        first.consumer.close()
        # A member whose leaving is not yet on record comes back with the node, and is missed only after its session.
        eventually(lambda: end_of_offsets(node) > before, 2 * PATIENCE_S, "the member did not leave")
        node.kill()
        node.start()
        produce(node, "t", [b"new"])
        again = GroupMember(node, "t", protocol)
        poll_until([again], lambda: bool(again.seen), "the group goes on")
        again.consumer.close()
        assert again.seen == [b"new"]


def end_of_offsets(node: NodeProcess) -> int:
    with RawKafka(node.kafka) as client:
        return client.offset_at("__consumer_offsets", 0, LATEST)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_go_on_through_a_kill_of_the_node(tmp_path_factory: pytest.TempPathFactory, protocol: str) -> None:
    """The coordinator knows its members again: nobody rejoins from nothing, nothing is read twice."""
    with (
        kept_port() as port,
        running_node(
            tmp_path_factory.mktemp("alive") / "data", {**QUICK_GROUPS, "listen.kafka": f"127.0.0.1:{port}"}
        ) as node,
    ):
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(PATIENCE_S)
        members = [GroupMember(node, "t", protocol) for _ in range(2)]
        poll_until(members, lambda: are_shared_evenly(members), "two share")
        values = [b"%d" % index for index in range(200)]
        produce(node, "t", values[:100])
        poll_until(members, lambda: sum(len(each.seen) for each in members) == 100, "both read")
        for member in members:
            member.consumer.commit(asynchronous=False)
        node.kill()
        node.start()
        produce(node, "t", values[100:])
        poll_until(members, lambda: sum(len(each.seen) for each in members) >= 200, "both go on")
        seen = members[0].seen + members[1].seen
        for member in members:
            member.consumer.close()
        assert Counter(seen) == Counter(values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_partitions_and_topics_are_found_by_pattern(
    node: NodeProcess, admin: AdminClient, topic: str, protocol: str
) -> None:
    member = GroupMember(node, f"^{topic}.*", protocol, **{"topic.metadata.refresh.interval.ms": 500})
    poll_until([member], lambda: len(member.partitions) == 4, "the pattern matches")
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_S)
    admin.create_topics([NewTopic(f"{topic}-more", 1, 1)])[f"{topic}-more"].result(PATIENCE_S)
    poll_until([member], lambda: len(member.consumer.assignment()) == 7, "what is new is found")
    member.consumer.close()


def test_static_member_returns_without_a_rebalance(node: NodeProcess, topic: str) -> None:
    stays = GroupMember(node, topic, "classic", **{"group.instance.id": "stays", "client.id": "stays"})
    leaves = GroupMember(node, topic, "classic", **{"group.instance.id": "leaves"})
    poll_until([stays, leaves], lambda: are_shared_evenly([stays, leaves]), "two share")
    revocations, share = stays.revocations, leaves.partitions
    leaves.consumer.close()
    back = GroupMember(node, topic, "classic", **{"group.instance.id": "leaves"})
    poll_until([stays, back], lambda: back.partitions == share, "the share is back")
    assert stays.revocations == revocations
    stays.consumer.close()
    back.consumer.close()


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
def test_assignment_strategies_of_the_client_work(node: NodeProcess, topic: str, strategy: str) -> None:
    members = [GroupMember(node, topic, "classic", **{"partition.assignment.strategy": strategy}) for _ in range(3)]
    poll_until(members, lambda: are_shared_evenly(members), "three share")
    for member in members:
        member.consumer.close()


def test_admin_client_sees_and_changes_groups(node: NodeProcess, admin: AdminClient, topic: str) -> None:
    produce(node, topic, [b"x"] * 10)
    member = GroupMember(node, topic, "classic")
    poll_until([member], lambda: len(member.seen) == 10, "all are read")
    member.consumer.commit(asynchronous=False)
    group = f"group-of-{topic}"
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert listed[group].state.name == "STABLE"

    def describe() -> ConsumerGroupDescription:
        return admin.describe_consumer_groups([group])[group].result(PATIENCE_S)

    assert len(describe().members[0].assignment.topic_partitions) == 4
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    member.consumer.close()
    # Leaving is a request like any other, which the client does not wait for as long as it takes.
    eventually(lambda: not describe().members, 2 * PATIENCE_S, "the member is still there")
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(4)])
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(PATIENCE_S)
    assert sum(max(each.offset, 0) for each in offsets.topic_partitions) == 10
    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index, 0) for index in range(4)])
    admin.alter_consumer_group_offsets([reset])[group].result(PATIENCE_S)
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(PATIENCE_S)
    assert [each.offset for each in offsets.topic_partitions] == [0, 0, 0, 0]
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert all(future.result(PATIENCE_S).offset >= 0 for future in ends.values())
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}


def test_fifty_members_make_room_for_one_more(node: NodeProcess, admin: AdminClient) -> None:
    seconds_to_make_room(node, admin, "fifty")


@pytest.mark.long
def test_fifty_members_rebalance_within_two_seconds(node: NodeProcess, admin: AdminClient) -> None:
    elapsed = seconds_to_make_room(node, admin, "fifty-quick")
    assert elapsed < 2, f"the rebalance took {elapsed:.1f} s"


def seconds_to_make_room(node: NodeProcess, admin: AdminClient, topic: str) -> float:
    """Fifty members share 51 partitions; one more joins, and one of them has to give one up."""
    admin.create_topics([NewTopic(topic, 51, 1)])[topic].result(PATIENCE_S)
    members = [GroupMember(node, topic, "classic") for _ in range(50)]

    def has_settled() -> bool:
        for member in members:
            member.consumer.poll(0)
        shares = [len(member.partitions) for member in members]
        return min(shares) >= 1 and sum(shares) == 51

    eventually(has_settled, PATIENCE_S, "fifty members did not settle")
    started = time.monotonic()
    members.append(GroupMember(node, topic, "classic"))
    eventually(has_settled, PATIENCE_S, "the rebalance did not end")
    elapsed = time.monotonic() - started
    for member in members:
        member.consumer.close()
    return elapsed
