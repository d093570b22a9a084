"""A group moves from the classic protocol to KIP-848 and back, member by member, while records flow (KIP-848)."""

from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.group_member import PATIENCE_S, QUICK_GROUPS, GroupMember, are_shared_evenly, poll_until, produce
from tests.support.node import NodeProcess

REJOINING = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH)

pytestmark = pytest.mark.requirement("R3.10", "X4.1")
NODE_SETTINGS = QUICK_GROUPS


class Fleet:
    """The members of one group. Between changes it reads and commits: what is committed must never come again."""

    def __init__(self, node: NodeProcess, topic: str, **config: object) -> None:
        self._node = node
        self._topic = topic
        self._config = config
        self._admin = AdminClient({"bootstrap.servers": node.kafka})
        self._sent = 0
        self._fresh: list[bytes] = []
        """Values not known to be committed."""
        self.members: list[GroupMember] = []

    def add(self, protocol: str) -> None:
        config = self._config if protocol == "classic" else {}
        self.members.append(GroupMember(self._node, self._topic, protocol, **config))
        self.work()

    def retire_oldest(self) -> None:
        self.members.pop(0).consumer.close()
        self.work()

    def work(self) -> None:
        members = self.members
        poll_until(members, lambda: are_shared_evenly(members), "members share evenly")
        self._fresh = [b"%05d" % index for index in range(self._sent, self._sent + 100)]
        self._sent += 100
        produce(self._node, self._topic, self._fresh)
        poll_until(members, self._is_all_committed, "all records are read and committed")
        for member in members:
            assert set(member.seen) <= set(self._fresh), "committed records were read again"
        assert {value for member in members for value in member.seen} == set(self._fresh)
        for member in members:
            member.seen.clear()

    def _is_all_committed(self) -> bool:
        for member in self.members:
            _commit(member)
        places = [TopicPartition(self._topic, index) for index in range(4)]
        offsets = self.members[0].consumer.committed(places, PATIENCE_S)
        return bool(sum(max(each.offset, 0) for each in offsets) == self._sent)

    @property
    def kind(self) -> str:
        listed = self._admin.list_consumer_groups().result(PATIENCE_S).valid
        return next(str(each.type.name) for each in listed if each.group_id == f"group-of-{self._topic}")

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()


def _commit(member: GroupMember) -> None:
    """Whoever joins again at this moment, or has read nothing since, has to try again."""
    try:
        member.consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in (*REJOINING, KafkaError._NO_OFFSET):
            raise


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("old", "new"), [("classic", "consumer"), ("consumer", "classic")])
def test_members_are_exchanged_one_by_one(node: NodeProcess, topic: str, old: str, new: str, strategy: str) -> None:
    fleet = Fleet(node, topic, **{"partition.assignment.strategy": strategy})
    with closing(fleet):
        fleet.add(old)
        fleet.add(old)
        assert fleet.kind == old.upper()
        for _ in range(2):
            fleet.add(new)
            assert fleet.kind == "CONSUMER"
            fleet.retire_oldest()
        assert fleet.kind == new.upper()


@pytest.mark.parametrize(("old", "new"), [("classic", "consumer"), ("consumer", "classic")])
def test_empty_group_takes_the_kind_of_who_joins_and_keeps_its_offsets(
    node: NodeProcess, topic: str, old: str, new: str
) -> None:
    before = Fleet(node, topic)
    with closing(before):
        before.add(old)
    assert before.kind == old.upper()
    after = GroupMember(node, topic, new)
    produce(node, topic, [b"new"])
    poll_until([after], lambda: bool(after.seen), "the group goes on")
    after.consumer.close()
    assert after.seen == [b"new"]
    assert before.kind == new.upper()
