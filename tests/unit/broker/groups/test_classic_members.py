"""Members of a KIP-848 group that still speak the classic protocol: by scripts, and mixed in a hostile order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consumer_group_script import (
    ScriptedGroup,
    SimulatedClassicClient,
    SimulatedClient,
    read_by_more_than_one,
    run,
    shapes,
)
from tests.support.script import expected

from headrace.broker.groups.classic.requests import RequestAnswer
from headrace.broker.groups.consumer.events import Answer, TopicsChanged
from headrace.broker.groups.consumer.machine import ConsumerGroup, ConsumerGroupState
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.outcome import GroupError


def test_eager_member_gets_its_share_by_joining_and_syncing() -> None:
    """It has let go of everything when it joins again, so one round is enough; nobody else waits for it."""
    script = """
    0 topics t=4
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1 t:2 t:3
    1 c joins t
      > epoch 2: member c joined or changed its mind
      > c gen 2
    2 c syncs
      > c has nothing
    3 a
      > a@1 has t:0 t:1
    4 c beats
      > c ok
    5 a owns 0 1
      > a@2
    6 c beats
      > c REBALANCE_IN_PROGRESS
    7 c joins t
      > c gen 2
    8 c syncs
      > c has t:2 t:3
    9 c beats
      > c ok
    10 state
      > Stable
    """
    assert run(script) == expected(script)


def test_cooperative_member_keeps_reading_until_it_has_let_go() -> None:
    script = """
    0 topics t=4
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1 t:2 t:3
    1 a owns 0 1 2 3
      > a@1
    2 c joins t
      > epoch 2: member c joined or changed its mind
      > c gen 2
    3 a
      > a@1 has t:0 t:1
    4 a owns 0 1
      > a@2
    5 c joins t
      > c gen 2
    6 c syncs
      > c has t:2 t:3
    7 b join t
      > epoch 3: member b joined or changed its mind
      > b@3 has nothing
    8 c beats
      > c REBALANCE_IN_PROGRESS
    # It is told of its smaller share under its old generation, and joins again without the rest.
    9 c joins t owns 2 3
      > c gen 2
    10 c syncs
      > c has t:2
    11 b
      > b@3
    12 c joins t owns 2
      > c gen 3
    13 c syncs
      > c has t:2
    14 b
      > b@3 has t:3
    """
    assert run(script) == expected(script)


def test_member_that_neither_joins_nor_syncs_in_time_is_removed() -> None:
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 c joins t session=100000
      > epoch 2: member c joined or changed its mind
      > c gen 2
    30000 a
      > a@1 has t:0
    30001 a owns 0
      > a@2
    # No sync within the rebalance timeout of sixty seconds.
    60000 tick
    60001 tick
      > epoch 3: out of time: c
    60002 a
      > a@3 has t:0 t:1
    60003 c joins t session=100000
      > epoch 4: member c joined or changed its mind
      > c gen 4
    60004 c syncs
      > c has nothing
    60005 a
      > a@3 has t:0
    60006 a owns 0
      > a@4
    # Told to join, and did not.
    60007 c beats
      > c REBALANCE_IN_PROGRESS
    90000 a
      > a@4
    100000 c beats
      > c REBALANCE_IN_PROGRESS
    120006 tick
    120007 tick
      > epoch 5: out of time: c
    """
    assert run(script) == expected(script)


def test_requests_are_checked() -> None:
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 c joins t v4=yes
      > c MEMBER_ID_REQUIRED
    2 c joins t speaks=range,roundrobin
      > epoch 2: member c joined or changed its mind
      > c gen 2
    3 d joins t speaks=sticky
      > d INCONSISTENT_GROUP_PROTOCOL
    4 d joins t session=1
      > d INVALID_SESSION_TIMEOUT
    5 c syncs gen=1
      > c ILLEGAL_GENERATION
    6 c syncs protocol=roundrobin
      > c INCONSISTENT_GROUP_PROTOCOL
    7 c beats gen=7
      > c ILLEGAL_GENERATION
    8 z beats
      > z UNKNOWN_MEMBER_ID
    # A member of the new protocol is none of the old one's.
    9 a beats gen=1
      > a UNKNOWN_MEMBER_ID
    10 a quits
      > a UNKNOWN_MEMBER_ID
    11 c quits
      > c left
      > epoch 3: members left
    12 c quits
      > c UNKNOWN_MEMBER_ID
    """
    assert run(script) == expected(script)


def test_static_member_changes_its_protocol_and_keeps_its_share() -> None:
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 b join t instance=i
      > epoch 2: member b joined or changed its mind
      > b@2 has nothing
    2 a
      > a@1 has t:0
    3 a owns 0
      > a@2
    4 b instance=i
      > b@2 has t:1
    5 c joins t instance=i v4=yes
      > c gen 2
    6 c syncs instance=i id=new-spare
      > c has t:1
    7 b instance=i
      > b FENCED_INSTANCE_ID
    8 d joins t instance=i
      > d FENCED_INSTANCE_ID
    9 e join t instance=i
      > e@2 has t:1
    """
    assert run(script) == expected(script)


def test_group_asks_to_become_classic_when_only_such_members_are_left() -> None:
    """The epoch does not rise then: it is the generation under which they will be known."""
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 c joins t
      > epoch 2: member c joined or changed its mind
      > c gen 2
    2 a leave
      > only classic members are left
      > a@-1
    """
    assert run(script) == expected(script)


def test_commit_of_a_classic_member_is_checked_by_its_generation() -> None:
    scripted = ScriptedGroup()
    run("0 topics t=2\n0 a join t\n1 c joins t", scripted)
    assert scripted.group.check_commit(member_id="c", member_epoch=2) is GroupError.NONE
    assert scripted.group.check_commit(member_id="c", member_epoch=1) is GroupError.ILLEGAL_GENERATION


moves = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from(["beat", "beat", "beat", "beat", "lose", "grow", "restart"])),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(moves)
def test_mixed_members_never_share_a_partition_and_read_all_in_the_end(script: list[tuple[str, str]]) -> None:
    """Two members of the new protocol, two cooperative and one eager of the old one; answers get lost."""
    group = ConsumerGroup()
    topics = frozenset({"t", "u"})
    clients: dict[str, SimulatedClient | SimulatedClassicClient] = {
        "a": SimulatedClient("a", topics),
        "b": SimulatedClient("b", topics),
        "c": SimulatedClassicClient("c", topics, is_cooperative=True),
        "d": SimulatedClassicClient("d", topics, is_cooperative=True),
        "e": SimulatedClassicClient("e", topics, is_cooperative=False),
    }
    counts = {"t": 5, "u": 2}
    group.step(TopicsChanged(topics=shapes(**counts)), now_ms=0)
    now_ms = 0

    def beat(name: str, *, is_heard: bool) -> None:
        client = clients[name]
        if isinstance(client, SimulatedClassicClient):
            actions = group.step(client.request(), now_ms=now_ms)
            (told,) = (each for each in actions if isinstance(each, RequestAnswer))
            if is_heard:
                client.hear(told)
        else:
            *_, answer = group.step(client.beat(1), now_ms=now_ms)
            assert isinstance(answer, Answer)
            if is_heard:
                client.hear(answer.reply)
            else:
                client.has_lost = True
        group.check_invariants()
        assert not read_by_more_than_one(clients.values())

    beat("a", is_heard=True)
    for name, verb in script:
        now_ms += 100
        match verb:
            case "beat" | "lose":
                beat(name, is_heard=verb == "beat")
            case "grow":
                counts["u"] += 1
                group.step(TopicsChanged(topics=shapes(**counts)), now_ms=now_ms)
            case "restart":
                group = ConsumerGroup.restore(
                    group.snapshot(), settings=ConsumerSettings(), topics=shapes(**counts), now_ms=now_ms
                )
        group.check_invariants()

    for _ in range(30):
        now_ms += 100
        for name in clients:
            beat(name, is_heard=True)
    assert group.state is ConsumerGroupState.STABLE
    loads = [len(client.owns) for client in clients.values()]
    assert sum(loads) == sum(counts.values())
    assert max(loads) - min(loads) <= 1
