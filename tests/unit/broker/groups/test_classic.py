"""The classic group machine, by scripts: commands, and below each the trace it must leave."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.classic_group_script import ScriptedGroup, run
from tests.support.script import expected, play

from headrace.broker.groups.classic import events, joining
from headrace.broker.groups.classic.cycle import GroupState
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.outcome import GroupError


@pytest.mark.trap(35)
def test_first_rebalance_waits_for_company_and_longer_while_it_arrives() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    1000 join b
      > parked
    3000 tick
    6000 tick
      > generation 1 with 2
      > join a: a gen 1 range leader a of a b
      > join b: b gen 1 range leader a
    6001 sync b
      > parked
    6002 sync a a:x b:y
      > store generation 1 [a=x, b=y]
      > sync a: x
      > sync b: y
    6003 beat a
      > beat a: ok
    6003 beat b
      > beat b: ok
    """
    assert run(script) == expected(script)


@pytest.mark.trap(35)
def test_initial_delay_is_extended_no_further_than_the_rebalance_timeout() -> None:
    script = """
    0 join a rebalance=5000
      > rebalance: member a joined
    2000 join b rebalance=5000
      > parked
    3000 tick
    4000 join c rebalance=5000
      > parked
    5000 tick
      > generation 1 with 3
      > join a: a gen 1 range leader a of a b c
      > join b: b gen 1 range leader a
      > join c: c gen 1 range leader a
    """
    assert run(script) == expected(script)


def test_group_that_emptied_waits_its_initial_delay_again() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 leave a
      > leave: a ok
      > rebalance: members left
      > generation 2 with 0
      > store generation 2 []
    4000 join b
      > rebalance: member b joined
    6999 tick
    7000 tick
      > generation 3 with 1
      > join b: b gen 3 range leader b of b
    """
    assert run(script) == expected(script)


def test_newcomer_makes_the_others_join_again() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 sync a a:all
      > store generation 1 [a=all]
      > sync a: all
    4000 join b
      > rebalance: member b joined
    4500 beat a
      > beat a: REBALANCE_IN_PROGRESS
    4600 sync a
      > sync a: REBALANCE_IN_PROGRESS
    5000 join id=a
      > generation 2 with 2
      > join a: a gen 2 range leader a of a b
      > join b: b gen 2 range leader a
    5001 sync b
      > parked
    5002 sync a a:x b:y
      > store generation 2 [a=x, b=y]
      > sync a: x
      > sync b: y
    5003 beat a gen=1
      > beat a: ILLEGAL_GENERATION
    """
    assert run(script) == expected(script)


@pytest.mark.trap(33)
def test_new_dynamic_member_is_told_its_id_first() -> None:
    """The id given out holds up a rebalance until its owner returns or its session ends."""
    script = """
    0 join a v4=1
      > join a: MEMBER_ID_REQUIRED as a
    1 join id=a v4=1
      > rebalance: member a joined
    3001 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3002 sync a a:x
      > store generation 1 [a=x]
      > sync a: x
    4000 join b v4=1
      > join b: MEMBER_ID_REQUIRED as b
    5000 join id=a
      > rebalance: member a joined again
    14000 tick
      > generation 2 with 1
      > join a: a gen 2 range leader a of a
    14001 join id=b
      > join b: UNKNOWN_MEMBER_ID as b
    """
    assert run(script) == expected(script)


@pytest.mark.trap(33)
def test_static_member_needs_no_second_join() -> None:
    script = """
    0 join a instance=ia v4=1
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    """
    assert run(script) == expected(script)


def test_silent_member_is_dropped_when_its_session_ends() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    0 join b
      > parked
    3000 tick
    6000 tick
      > generation 1 with 2
      > join a: a gen 1 range leader a of a b
      > join b: b gen 1 range leader a
    6001 sync a a:x b:y
      > store generation 1 [a=x, b=y]
      > sync a: x
    6001 sync b
      > sync b: y
    10000 beat a
      > beat a: ok
    16000 tick
    16001 tick
      > rebalance: members fell silent
    16002 beat a
      > beat a: REBALANCE_IN_PROGRESS
    16003 join id=a
      > generation 2 with 1
      > join a: a gen 2 range leader a of a
    16004 beat b gen=1
      > beat b: UNKNOWN_MEMBER_ID
    """
    assert run(script) == expected(script)


def test_member_that_misses_the_rebalance_deadline_is_dropped() -> None:
    """It may heartbeat as it likes: it did not join, and the others do not wait longer than promised."""
    script = """
    0 join a rebalance=8000
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 sync a a:x
      > store generation 1 [a=x]
      > sync a: x
    4000 join b rebalance=8000
      > rebalance: member b joined
    10000 beat a
      > beat a: REBALANCE_IN_PROGRESS
    12000 tick
      > generation 2 with 1
      > join b: b gen 2 range leader b of b
    """
    assert run(script) == expected(script)


@pytest.mark.trap(32)
def test_join_without_a_rebalance_timeout_uses_the_session_timeout() -> None:
    script = """
    0 join a session=7000 rebalance=-1
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 sync a a:x
      > store generation 1 [a=x]
      > sync a: x
    4000 join b session=7000 rebalance=-1
      > rebalance: member b joined
    9000 beat a
      > beat a: REBALANCE_IN_PROGRESS
    10999 tick
    11000 tick
      > generation 2 with 1
      > join b: b gen 2 range leader b of b
    """
    assert run(script) == expected(script)


def test_member_that_never_syncs_is_dropped() -> None:
    script = """
    0 join a rebalance=20000
      > rebalance: member a joined
    0 join b rebalance=20000
      > parked
    3000 tick
    6000 tick
      > generation 1 with 2
      > join a: a gen 1 range leader a of a b
      > join b: b gen 1 range leader a
    6001 sync a a:x b:y
      > store generation 1 [a=x, b=y]
      > sync a: x
    14000 beat a
      > beat a: ok
    14000 beat b
      > beat b: ok
    20000 beat a
      > beat a: ok
    20000 beat b
      > beat b: ok
    26000 tick
      > rebalance: members fell silent
    26001 beat b
      > beat b: UNKNOWN_MEMBER_ID
    """
    assert run(script) == expected(script)


@pytest.mark.trap(36)
def test_static_member_returns_without_a_rebalance() -> None:
    """Its former self is fenced; a leader that understands is told to skip assigning, an older one not to lead."""
    script = """
    0 join a instance=ia
      > rebalance: member a joined
    0 join b instance=ib
      > parked
    3000 tick
    6000 tick
      > generation 1 with 2
      > join a: a gen 1 range leader a of a b
      > join b: b gen 1 range leader a
    6001 sync a a:x b:y
      > store generation 1 [a=x, b=y]
      > sync a: x
    6001 sync b instance=ib
      > sync b: y
    7000 join b instance=ib spare=b9
      > store generation 1 [a=x, b9=y]
      > join b: b9 gen 1 range leader a
    7001 beat b instance=ib
      > beat b: FENCED_INSTANCE_ID
    7002 sync b9 instance=ib
      > sync b9: y
    7003 join a instance=ia v9=1 spare=a9
      > store generation 1 [b9=y, a9=x]
      > join a: a9 gen 1 range leader a9 of b9 a9 skip
    7004 sync a9 instance=ia
      > sync a9: x
    7005 join a instance=ia spare=a10
      > store generation 1 [b9=y, a10=x]
      > join a: a10 gen 1 range leader a9
    7006 leave @ib @nobody
      > leave: ib ok, nobody UNKNOWN_MEMBER_ID
      > rebalance: members left
    """
    assert run(script) == expected(script)


@pytest.mark.trap(36)
def test_two_processes_with_one_instance_id_fence_each_other() -> None:
    script = """
    0 join a instance=ia
      > rebalance: member a joined
    1 join a instance=ia
      > join a: FENCED_INSTANCE_ID as a
    3000 tick
      > generation 1 with 1
      > join a: a2 gen 1 range leader a2 of a2
    """
    assert run(script) == expected(script)


def test_static_members_that_do_not_return_keep_their_place_until_their_session_ends() -> None:
    script = """
    0 join a instance=ia session=60000 rebalance=10000
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 sync a a:x
      > store generation 1 [a=x]
      > sync a: x
    4000 join b rebalance=10000
      > rebalance: member b joined
    14000 tick
      > generation 2 with 2
      > join b: b gen 2 range leader b of a b
    14001 sync b a:x b:y
      > store generation 2 [a=x, b=y]
      > sync b: y
    """
    assert run(script) == expected(script)


def test_protocol_with_most_first_votes_among_the_common_ones_wins() -> None:
    script = """
    0 join a speaks=sticky,range,own
      > rebalance: member a joined
    0 join b speaks=range,sticky
      > parked
    0 join c speaks=other,range,sticky
      > parked
    0 join d speaks=mine
      > join d: INCONSISTENT_GROUP_PROTOCOL as nobody
    0 join e type=connect speaks=range
      > join e: INCONSISTENT_GROUP_PROTOCOL as nobody
    3000 tick
    6000 tick
      > generation 1 with 3
      > join a: a gen 1 range leader a of a b c
      > join b: b gen 1 range leader a
      > join c: c gen 1 range leader a
    6001 sync b protocol=sticky
      > sync b: INCONSISTENT_GROUP_PROTOCOL
    """
    assert run(script) == expected(script)


def test_repeated_join_of_a_follower_changes_nothing() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    0 join b
      > parked
    3000 tick
    6000 tick
      > generation 1 with 2
      > join a: a gen 1 range leader a of a b
      > join b: b gen 1 range leader a
    6001 join id=b
      > join b: b gen 1 range leader a
    6002 join id=a
      > join a: a gen 1 range leader a of a b
    6003 sync a a:x b:y
      > store generation 1 [a=x, b=y]
      > sync a: x
    6004 join id=b
      > join b: b gen 1 range leader a
    6005 join id=b wants=more
      > rebalance: member b joined again
    """
    assert run(script) == expected(script)


def test_assignment_is_handed_out_only_once_it_is_stored() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    3000 tick
      > generation 1 with 1
      > join a: a gen 1 range leader a of a
    3001 sync a a:x
      > store generation 1 [a=x]
    3002 lost
      > sync a: COORDINATOR_NOT_AVAILABLE
      > rebalance: the assignment could not be stored
    3003 join id=a
      > generation 2 with 1
      > join a: a gen 2 range leader a of a
    3004 sync a a:x
      > store generation 2 [a=x]
    3005 stored
      > sync a: x
    """
    assert run(script, stores=False) == expected(script)


def test_session_timeout_outside_the_bounds_is_refused() -> None:
    script = """
    0 join a session=10
      > join a: INVALID_SESSION_TIMEOUT as nobody
    0 join a session=99999999
      > join a: INVALID_SESSION_TIMEOUT as nobody
    """
    assert run(script) == expected(script)


def test_full_group_takes_no_more_members() -> None:
    script = """
    0 join a
      > rebalance: member a joined
    0 join b
      > join b: GROUP_MAX_SIZE_REACHED as nobody
    """
    assert run(script, settings=ClassicSettings(members_max=1)) == expected(script)


def test_a_member_that_comes_back_with_its_id_is_not_counted_against_itself() -> None:
    """Nor does one that never comes back keep others out: as in Kafka, only members count."""
    script = """
    0 join a v4=1
      > join a: MEMBER_ID_REQUIRED as a
    1 join b v4=1
      > join b: MEMBER_ID_REQUIRED as b
    2 join id=b v4=1
      > rebalance: member b joined
    3 join id=a v4=1
      > join a: GROUP_MAX_SIZE_REACHED as a
    """
    assert run(script, settings=ClassicSettings(members_max=1)) == expected(script)


def test_ids_that_were_given_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "EXPECTED_MAX", 2)
    script = """
    0 join a v4=1
      > join a: MEMBER_ID_REQUIRED as a
    0 join b v4=1
      > join b: MEMBER_ID_REQUIRED as b
    0 join c v4=1
      > join c: GROUP_MAX_SIZE_REACHED as nobody
    """
    assert run(script) == expected(script)


def stable_pair() -> ClassicGroup:
    scripted = ScriptedGroup()
    play(scripted, "0 join a\n0 join b\n3000 tick\n6000 tick\n6001 sync a a:x b:y\n6002 sync b")
    return scripted.group


def commit(group: ClassicGroup, member_id: str = "", generation: int = -1, **more: bool) -> GroupError:
    return group.check_commit(
        member_id=member_id,
        instance_id=None,
        generation=generation,
        in_transaction=more.get("in_transaction", False),
        now_ms=7000,
    )


@pytest.mark.trap(48)
def test_commit_without_a_member_is_for_groups_without_members() -> None:
    assert commit(ClassicGroup()) is GroupError.NONE
    assert commit(stable_pair()) is GroupError.UNKNOWN_MEMBER_ID
    assert commit(stable_pair(), in_transaction=True) is GroupError.NONE


def test_commit_checks_member_and_generation() -> None:
    group = stable_pair()
    assert commit(group, "a", 1) is GroupError.NONE
    assert commit(group, "a", 0) is GroupError.ILLEGAL_GENERATION
    assert commit(group, "z", 1) is GroupError.UNKNOWN_MEMBER_ID


def test_group_survives_its_coordinator() -> None:
    again = ClassicGroup.restore(stable_pair().snapshot(), settings=ClassicSettings(), now_ms=50_000)
    assert again.state is GroupState.STABLE
    script = """
    50001 beat b
      > beat b: ok
    50002 sync b
      > sync b: y
    60000 tick
      > rebalance: members fell silent
    """
    assert play(ScriptedGroup(group=again), script) == expected(script)


def test_only_an_empty_group_can_be_deleted() -> None:
    assert stable_pair().retire() is GroupError.NON_EMPTY_GROUP
    group = ClassicGroup()
    assert group.retire() is GroupError.NONE
    assert group.retire() is GroupError.GROUP_ID_NOT_FOUND
    assert run_join(group) is GroupError.COORDINATOR_NOT_AVAILABLE


def run_join(group: ClassicGroup) -> GroupError:
    scripted = ScriptedGroup(group=group)
    event = scripted._join("a", {})
    [action] = group.step(event, now_ms=0)
    assert isinstance(action, events.AnswerJoin)
    return action.reply.error


verbs = st.sampled_from(
    ["join {0}", "join {0} v4=1", "join id={0}", "join {0} instance=i{0}", "sync {0} a:x b:y", "sync {0}",
     "beat {0}", "leave {0}", "leave @i{0}", "tick", "stored", "lost"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4000), verbs, st.sampled_from("abc")), max_size=40))
def test_invariants_hold_and_every_request_is_answered_in_the_end(
    commands: list[tuple[int, str, str]],
) -> None:
    scripted = ScriptedGroup(stores=False)
    now_ms = 0
    for wait_ms, verb, name in commands:
        now_ms += wait_ms
        scripted.play(f"{now_ms} {verb.format(name)}")
    asked = set(scripted.names)
    for _ in range(40):
        scripted.play(f"{now_ms} stored")
        scripted.play(f"{now_ms} tick")
        if scripted.group.next_deadline_ms is None:
            break
        now_ms = max(now_ms, scripted.group.next_deadline_ms)
    assert scripted.group.state is GroupState.EMPTY
    assert set(scripted.answered) == asked
