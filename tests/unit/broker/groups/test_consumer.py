"""The KIP-848 group machine, by scripts, and by simulated clients in a hostile order."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consumer_group_script import ScriptedGroup, SimulatedClient, read_by_more_than_one, run, shapes
from tests.support.script import expected

from headrace.broker.groups.consumer import events
from headrace.broker.groups.consumer.events import Answer, GroupSnapshot, Tick, TopicsChanged
from headrace.broker.groups.consumer.machine import ConsumerGroup, ConsumerGroupState
from headrace.broker.groups.consumer.settings import ConsumerSettings
from headrace.broker.groups.outcome import GroupError


def test_partition_is_given_only_after_its_holder_let_go() -> None:
    script = """
    0 topics t=4
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1 t:2 t:3
    1 a owns 0 1 2 3
      > a@1
    2 b join t
      > epoch 2: member b joined or changed its mind
      > b@2 has nothing
    3 state
      > Reconciling
    4 a
      > a@1 has t:0 t:1
    5 b
      > b@2
    6 a owns 0 1 2 3
      > a@1
    7 a owns 0 1
      > a@2
    8 b
      > b@2 has t:2 t:3
    9 state
      > Stable
    10 a leave
      > epoch 3: member a left
      > a@-1
    11 b
      > b@3 has t:0 t:1 t:2 t:3
    12 state
      > Stable
    """
    assert run(script) == expected(script)


def test_member_that_does_not_let_go_in_time_is_removed() -> None:
    script = """
    0 topics t=2
    0 a join t patience=1000
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 b join t
      > epoch 2: member b joined or changed its mind
      > b@2 has nothing
    2 a
      > a@1 has t:0
    1001 tick
    1002 tick
      > epoch 3: out of time: a
    1003 a
      > a UNKNOWN_MEMBER_ID
    1004 b
      > b@3 has t:0 t:1
    46003 tick
    46004 tick
      > epoch 4: out of time: b
    46005 state
      > Empty
    """
    assert run(script) == expected(script)


def test_a_pattern_finds_only_topics_that_its_member_may_describe() -> None:
    """Rights are those of the last request: what is taken away is given up, what is given is found."""
    script = """
    0 topics ta=1 tb=1 tc=1
    0 a join regex=t.* sees=ta,tb
      > epoch 1: member a joined or changed its mind
      > a@1 has ta:0 tb:0
    1 topics ta=1 tb=1 tc=1 td=1
    2 a sees=ta,tb
      > a@1
    3 a sees=ta,td
      > epoch 2: member a joined or changed its mind
      > a@1 has ta:0
    4 a owns ta:0 sees=ta,td
      > a@2 has ta:0 td:0
    5 b join regex=t.* sees=tc
      > epoch 3: member b joined or changed its mind
      > b@3 has tc:0
    6 topics ta=1 tb=1 tc=1
      > epoch 4: topics changed
    7 a sees=ta,tb
      > a@2 has ta:0
    8 a owns ta:0 sees=ta,tb
      > a@4 has ta:0 tb:0
    """
    assert run(script) == expected(script)


def test_a_pattern_finds_nothing_new_for_a_restored_member_until_it_reports() -> None:
    """Who may describe what is not kept with the group: a coordinator that takes over does not guess."""
    scripted = ScriptedGroup()
    run("0 topics ta=1 tb=1 u=1\n0 a join regex=t.* sees=ta\n1 b join u", scripted)
    snapshot = scripted.group.snapshot()
    restored = ScriptedGroup(
        ConsumerGroup.restore(snapshot, settings=ConsumerSettings(), topics=shapes(ta=1, tb=1, u=1), now_ms=2),
        scripted.epochs,
    )
    script = """
    2 b
      > b@3
    3 a sees=ta
      > a@3
    4 a sees=ta,tb
      > epoch 4: member a joined or changed its mind
      > a@4 has ta:0 tb:0
    """
    assert run(script, restored) == expected(script)


def test_static_member_comes_back_to_its_share() -> None:
    script = """
    0 topics t=2
    0 a join t instance=i
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 a2 join t instance=i
      > a2 UNRELEASED_INSTANCE_ID
    2 a pause instance=i
      > a@-2
    3 a2 join t instance=i
      > a2@1 has t:0 t:1
    4 a instance=i epoch=1
      > a FENCED_INSTANCE_ID
    5 a2 instance=i
      > a2@1
    6 a2 leave instance=i
      > epoch 2: member a2 left
      > a2@-1
    """
    assert run(script) == expected(script)


def test_lost_answer_is_forgiven_and_a_wrong_epoch_is_not() -> None:
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 b join t
      > epoch 2: member b joined or changed its mind
      > b@2 has nothing
    2 a
      > a@1 has t:0
    3 a owns 0
      > a@2
    4 a epoch=1 owns 0
      > a@2
    5 a epoch=1 owns 0 1
      > a FENCED_MEMBER_EPOCH
    6 a epoch=7
      > a FENCED_MEMBER_EPOCH
    7 z epoch=3
      > z UNKNOWN_MEMBER_ID
    """
    assert run(script) == expected(script)


def test_requests_that_make_no_sense_are_refused() -> None:
    script = """
    0 topics t=2
    0 a join t
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1
    1 a wants t assignor=nope
      > a UNSUPPORTED_ASSIGNOR
    3 a regex=(
      > a INVALID_REGULAR_EXPRESSION
    """
    assert run(script) == expected(script)


def test_a_pattern_is_looked_at_once_it_is_known_who_asks() -> None:
    """As in Kafka: a member that is fenced or not known hears that first, whatever it subscribes to."""
    script = """
    0 topics t=1
    0 a join t instance=i
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0
    1 a regex=( epoch=7
      > a FENCED_MEMBER_EPOCH
    2 z regex=( epoch=1
      > z UNKNOWN_MEMBER_ID
    3 b join regex=( instance=i
      > b UNRELEASED_INSTANCE_ID
    4 c join regex=(
      > c INVALID_REGULAR_EXPRESSION
    5 a owns 0
      > a@1
    """
    assert run(script) == expected(script)


def test_whoever_joins_names_topics_or_a_pattern_even_if_there_are_none() -> None:
    """As in Kafka: an empty list is a subscription, and belongs to a consumer that will subscribe later."""
    group = ConsumerGroup()
    joining = events.Heartbeat(
        ticket=1, member_id="a", member_epoch=0, rebalance_timeout_ms=1000, owned=frozenset(), topic_names=None
    )
    (answer,) = group.step(joining, now_ms=0)
    assert isinstance(answer, events.Answer)
    assert answer.reply.error is GroupError.INVALID_REQUEST
    script = """
    0 topics t=2
    0 a join
      > epoch 1: member a joined or changed its mind
      > a@1 has nothing
    1 b join t
      > epoch 2: member b joined or changed its mind
      > b@2 has t:0 t:1
    2 a wants t
      > epoch 3: member a joined or changed its mind
      > a@3
    3 b
      > b@2 has t:0
    4 b owns 0
      > b@3
    5 a
      > a@3 has t:1
    6 c join regex=
      > epoch 4: member c joined or changed its mind
      > c@4 has nothing
    """
    assert run(script) == expected(script)


def test_pattern_follows_topics_as_they_come() -> None:
    script = """
    0 topics t=1 other=1
    0 a join regex=t.*
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0
    1 topics t=1 other=1 tea=2
      > epoch 2: topics changed
    2 a
      > a@2 has t:0 tea:0 tea:1
    3 topics t=1 other=2 tea=2
    """
    assert run(script) == expected(script)


def test_range_assignor_can_be_asked_for() -> None:
    script = """
    0 topics t=3 u=3
    0 a join t u assignor=range
      > epoch 1: member a joined or changed its mind
      > a@1 has t:0 t:1 t:2 u:0 u:1 u:2
    1 b join t u assignor=range
      > epoch 2: member b joined or changed its mind
      > b@2 has nothing
    2 a
      > a@1 has t:0 t:1 u:0 u:1
    3 a owns t:0 t:1 u:0 u:1
      > a@2
    4 b
      > b@2 has t:2 u:2
    """
    assert run(script) == expected(script)


def test_where_members_want_different_assignors_and_none_has_more_votes_it_is_the_default_one() -> None:
    """As in Apache Kafka, whoever joined first."""
    for first, second in (("range", "uniform"), ("uniform", "range")):
        scripted = ScriptedGroup()
        run(f"0 topics t=3\n0 a join t assignor={first}\n1 b join t assignor={second}", scripted)
        assert scripted.group.assignor == "uniform"
        run("2 c join t assignor=range", scripted)
        assert scripted.group.assignor == "range"


def test_commit_needs_the_present_member_epoch() -> None:
    scripted = ScriptedGroup()
    run("0 topics t=1\n0 a join t", scripted)
    group = scripted.group
    assert group.check_commit(member_id="a", member_epoch=1) is GroupError.NONE
    assert group.check_commit(member_id="a", member_epoch=0) is GroupError.STALE_MEMBER_EPOCH
    assert group.check_commit(member_id="z", member_epoch=1) is GroupError.UNKNOWN_MEMBER_ID
    assert group.check_commit(member_id="", member_epoch=-1) is GroupError.UNKNOWN_MEMBER_ID
    assert group.check_commit(member_id="", member_epoch=-1, in_transaction=True) is GroupError.NONE
    assert group.retire() is GroupError.NON_EMPTY_GROUP


def test_while_there_are_no_members_whoever_says_no_epoch_may_commit_and_strangers_may_not_ask() -> None:
    scripted = ScriptedGroup()
    run("0 topics t=1\n0 a join t\n1 a leave", scripted)
    group = scripted.group
    assert group.check_commit(member_id="stranger", member_epoch=-1) is GroupError.NONE
    assert group.check_commit(member_id="stranger", member_epoch=0) is GroupError.UNKNOWN_MEMBER_ID
    assert group.check_reader(member_id="", member_epoch=-1) is GroupError.UNKNOWN_MEMBER_ID


def test_group_survives_its_coordinator() -> None:
    scripted = ScriptedGroup()
    run("0 topics t=2\n0 a join t\n1 b join t\n2 a", scripted)
    raw = msgspec.msgpack.encode(scripted.group.snapshot())
    again = ConsumerGroup.restore(
        msgspec.msgpack.decode(raw, type=GroupSnapshot),
        settings=ConsumerSettings(),
        topics=shapes(t=2),
        now_ms=100,
    )
    again.check_invariants()
    script = """
    101 b
      > b@3
    102 a owns 0
      > a@3
    103 b
      > b@3 has t:1
    """
    assert run(script, ScriptedGroup(group=again, epochs=scripted.epochs)) == expected(script)


moves = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from(["beat", "beat", "beat", "lose", "crash", "grow", "restart"])),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(moves)
def test_no_partition_is_ever_read_by_two_and_all_are_read_in_the_end(script: list[tuple[str, str]]) -> None:
    """Clients beat in any order, lose answers, crash and return; topics grow; the coordinator moves."""
    group = ConsumerGroup()
    clients = {name: SimulatedClient(name, frozenset({"t", "u"})) for name in "abcde"}
    counts = {"t": 5, "u": 2}
    group.step(TopicsChanged(topics=shapes(**counts)), now_ms=0)
    now_ms = 0

    def beat(name: str, *, is_heard: bool) -> None:
        client = clients[name]
        *_, action = group.step(client.beat(1), now_ms=now_ms)
        group.check_invariants()
        assert isinstance(action, Answer)
        if is_heard:
            client.hear(action.reply)
        else:
            client.has_lost = True

    for name, verb in script:
        now_ms += 100
        match verb:
            case "beat" | "lose":
                beat(name, is_heard=verb == "beat")
            case "crash":
                clients[name] = SimulatedClient(name, frozenset({"t", "u"}))
            case "grow":
                counts["u"] += 1
                group.step(TopicsChanged(topics=shapes(**counts)), now_ms=now_ms)
            case "restart":
                group = ConsumerGroup.restore(
                    group.snapshot(), settings=ConsumerSettings(), topics=shapes(**counts), now_ms=now_ms
                )
        group.check_invariants()
        assert not read_by_more_than_one(clients.values())

    for _ in range(12):
        now_ms += 100
        group.step(Tick(), now_ms=now_ms)
        for name in clients:
            beat(name, is_heard=True)
            assert not read_by_more_than_one(clients.values())
    assert group.state is ConsumerGroupState.STABLE
    loads = [len(client.owns) for client in clients.values()]
    assert sum(loads) == sum(counts.values())
    assert max(loads) - min(loads) <= 1
