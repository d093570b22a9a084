"""A group becomes one of the other kind with its members in it."""

import pytest
from tests.support.classic_group_script import ScriptedGroup as ClassicScript
from tests.support.consumer_group_script import ScriptedGroup as ConsumerScript
from tests.support.consumer_group_script import classic_join, run, shapes, topic_id
from tests.support.script import expected

from headrace.broker.groups import migration
from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.classic.cycle import GroupState
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.consumer.topics import KnownTopics
from headrace.broker.groups.embedded import read_assignment, write_assignment
from headrace.broker.groups.outcome import GroupError
from headrace.errors import MalformedRequest

TOPICS = KnownTopics(shapes(t=4))


def classic_pair(*, first: bytes, second: bytes) -> ClassicGroup:
    """Members a and b, stable in generation 1, with these shares."""
    group = ClassicGroup(ClassicSettings(initial_delay_ms=10))
    for name in "ab":
        join = classic_join("", topics=["t"], names=("sticky", "range") if name == "a" else ("range",))
        group.step(join_as(join, name), now_ms=0)
    for now_ms in (10, 20):
        group.step(classic.Tick(), now_ms=now_ms)
    group.step(classic.Sync(member_id="a", generation=1, assignments={"a": first, "b": second}), now_ms=20)
    group.step(classic.Sync(member_id="b", generation=1), now_ms=20)
    group.step(classic.Stored(generation=1), now_ms=20)
    assert group.state is GroupState.STABLE
    return group


def join_as(join: classic.Join, name: str) -> classic.Join:
    return classic.Join(
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        protocol_type=join.protocol_type,
        protocols=join.protocols,
        spare_member_id=name,
    )


def upgrade(group: ClassicGroup) -> ConsumerGroup:
    snapshot = migration.upgraded(group, TOPICS)
    upgraded = ConsumerGroup.restore(snapshot, settings=ConsumerSettings(), topics=TOPICS.shapes, now_ms=30)
    upgraded.check_invariants()
    return upgraded


def share(*indexes: int) -> bytes:
    return write_assignment([("t", index) for index in indexes], 1)


def test_members_keep_what_they_read_and_their_generation() -> None:
    group = upgrade(classic_pair(first=share(0, 1), second=share(2, 3)))
    assert group.members["a"].assigned == {(topic_id("t"), 0), (topic_id("t"), 1)}
    assert group.members["b"].assigned == {(topic_id("t"), 2), (topic_id("t"), 3)}
    assert group.check_commit(member_id="a", member_epoch=1) is GroupError.NONE
    assert migration.can_upgrade(classic_pair(first=b"", second=b""))


def test_newcomer_waits_until_a_classic_member_has_let_go() -> None:
    scripted = ConsumerScript(upgrade(classic_pair(first=share(0, 1), second=share(2, 3))), {"a": 1, "b": 1})
    script = """
    30 n join t
      > epoch 3: member n joined or changed its mind
      > n@3 has nothing
    31 b beats
      > b REBALANCE_IN_PROGRESS
    32 n
      > n@3
    33 b joins t
      > b gen 3
    34 b syncs
      > b has t:2
    35 n
      > n@3 has t:3
    """
    assert run(script, scripted) == expected(script)


def test_partition_that_the_leader_gave_twice_has_one_holder() -> None:
    group = upgrade(classic_pair(first=share(0, 1), second=share(1, 2)))
    assert group.members["b"].assigned == {(topic_id("t"), 2)}


def test_share_of_a_topic_that_is_gone_is_dropped() -> None:
    lost = write_assignment([("gone", 0), ("t", 9), ("t", 3)], 1)
    group = upgrade(classic_pair(first=lost, second=b""))
    assert group.members["a"].assigned == {(topic_id("t"), 3)}


def test_bytes_that_are_no_subscription_stop_the_upgrade() -> None:
    group = ClassicScript(ClassicGroup(ClassicSettings(initial_delay_ms=0)))
    group.play("0 join a wants=?")
    with pytest.raises(MalformedRequest):
        migration.upgraded(group.group, TOPICS)


def test_classic_group_goes_on_with_the_members_that_are_left() -> None:
    """They rebalance, and those that were up to date may commit meanwhile."""
    scripted = ConsumerScript()
    run(
        """
        0 topics t=4
        0 n join t
        1 a joins t speaks=sticky,range
        2 b joins t speaks=range
        3 n
        4 n owns 0
        6 a joins t speaks=sticky,range
        7 b joins t speaks=range
        8 n leave
        """,
        scripted,
    )
    snapshot = migration.downgraded(scripted.group, TOPICS, now_ms=10)
    group = ClassicGroup.restore(snapshot, settings=ClassicSettings(), now_ms=10)
    group.check_invariants()
    assert group.protocol_name == "range"
    assert group.generation == scripted.group.epoch
    held = [read_assignment(each.assignment) for each in group.members.values()]
    assert [len(each) for each in held] == [2, 1]
    group.step(classic.Rebalance(reason="only classic members are left"), now_ms=10)
    group.check_invariants()
    assert group.state is GroupState.PREPARING
    commit = group.check_commit(
        member_id="a", instance_id=None, generation=group.generation, in_transaction=False, now_ms=11
    )
    assert commit is GroupError.NONE


def test_whoever_waits_in_the_old_group_is_told_to_join_again() -> None:
    scripted = ClassicScript(ClassicGroup(ClassicSettings(initial_delay_ms=3000)))
    scripted.play("0 join a")
    actions = scripted.group.step(classic.HandOver(), now_ms=1)
    scripted.group.check_invariants()
    (answer,) = actions
    assert isinstance(answer, classic.AnswerJoin)
    assert answer.reply.error is GroupError.REBALANCE_IN_PROGRESS
    assert scripted.group.next_deadline_ms is None
