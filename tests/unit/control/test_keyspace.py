"""Drafts and the keyspace against a model: any mixture of commands, merged in any grouping, gives the same state."""

from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from headrace.control.keyspace import STEP_SIZE, Draft, Keyspace
from headrace.control.metastore import (
    NO_LEASE,
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    LeaseId,
    Op,
    Put,
    Relation,
    Target,
    TxnResult,
    absent,
    only,
    prefix,
)
from headrace.errors import HeadraceError

some_keys = st.sampled_from([f"/{part}/{index}" for part in "ab" for index in range(4)])
leases = st.sampled_from([NO_LEASE, LeaseId(1), LeaseId(2)])
ops: st.SearchStrategy[Op] = st.one_of(
    st.builds(Put, some_keys, st.binary(max_size=2), leases),
    st.builds(Delete, st.builds(lambda a, b: KeyRange(min(a, b), max(a, b)), some_keys, some_keys)),
)
compares = st.builds(
    Compare,
    some_keys,
    st.sampled_from([Target.MOD_REVISION, Target.CREATE_REVISION, Target.VERSION]),
    st.sampled_from(list(Relation)),
    st.integers(0, 6),
)
txns = st.tuples(st.lists(compares, max_size=2), st.lists(ops, max_size=4), st.lists(ops, max_size=2))
commands = st.one_of(txns, st.sampled_from(["grant", ("revoke", 1), ("revoke", 2)]))


def run(groups: list[list[object]]) -> tuple[Keyspace, list[object]]:
    """Each group is one draft, merged when it is complete."""
    keyspace = Keyspace((), revision=1, leases={})
    fresh_leases = (LeaseId(number) for number in count(1))
    outcomes: list[object] = []
    events: list[object] = []
    for group in groups:
        draft = Draft(keyspace)
        for command in group:
            try:
                outcomes.append(run_one(draft, command, fresh_leases))
            except HeadraceError as error:
                outcomes.append(type(error))
        keyspace.merge(draft)
        keyspace.check_invariants()
        events.extend(draft.events)
    return keyspace, [*outcomes, *events]


def run_one(draft: Draft, command: object, fresh_leases: Iterator[LeaseId]) -> TxnResult | None:
    match command:
        case "grant":
            draft.grant_lease(next(fresh_leases), 10)
        case ("revoke", int(lease)):
            draft.revoke_lease(LeaseId(lease))
        case (list() as conditions, list() as then_ops, list() as else_ops):
            return draft.txn(conditions, then_ops, else_ops)
    return None


def contents(keyspace: Keyspace) -> tuple[KeyValue, ...]:
    return keyspace.range(prefix("/"), limit=None, is_descending=False).items


@given(st.lists(st.lists(commands, max_size=5), max_size=8))
def test_how_commands_are_grouped_into_commits_makes_no_difference(groups: list[list[object]]) -> None:
    together, seen_together = run([[command for group in groups for command in group]])
    grouped, seen_grouped = run(groups)
    alone, seen_alone = run([[command] for group in groups for command in group])
    assert contents(together) == contents(grouped) == contents(alone)
    assert together.revision == grouped.revision == alone.revision
    assert seen_together == seen_grouped == seen_alone


@given(st.sets(st.integers(0, 500)), st.sets(st.integers(0, 500)))
def test_many_keys_come_and_go_in_order(added: set[int], removed: set[int]) -> None:
    keyspace = Keyspace((), revision=1, leases={})
    for ops in ([Put(f"/{n:03}", b"") for n in added], [Delete(KeyRange(f"/{n:03}", f"/{n:03}!")) for n in removed]):
        draft = Draft(keyspace)
        draft.txn((), ops, ())
        keyspace.merge(draft)
        keyspace.check_invariants()
    assert [item.key for item in contents(keyspace)] == [f"/{n:03}" for n in sorted(added - removed)]


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 60))), max_size=6))
def test_keys_are_in_order_for_who_asks_late(rounds: list[tuple[bool, set[int]]]) -> None:
    """Keys that come, go and come back before anybody wants a range."""
    keyspace = Keyspace((), revision=1, leases={})
    expected: set[int] = set()
    for is_put, numbers in rounds:
        draft = Draft(keyspace)
        draft.txn((), [Put(f"/{n:03}", b"") if is_put else Delete(only(f"/{n:03}")) for n in numbers], ())
        keyspace.merge(draft)
        expected = expected | numbers if is_put else expected - numbers
    assert len(keyspace) == len(expected)
    assert [item.key for item in contents(keyspace)] == [f"/{n:03}" for n in sorted(expected)]
    keyspace.check_invariants()


def test_steps_of_a_transaction_are_short_and_give_the_same() -> None:
    keyspace = Keyspace((), revision=1, leases={})
    puts = [Put(f"/{n:04}", b"") for n in range(5 * STEP_SIZE)]
    conditions = [absent(op.key) for op in puts]
    at_once, in_steps = Draft(keyspace), Draft(keyspace)
    assert sum(1 for _ in in_steps.txn_in_steps(conditions, puts, ())) >= 15
    assert at_once.txn(conditions, puts, ()).is_success
    assert (in_steps.changes, in_steps.events) == (at_once.changes, at_once.events)
    assert in_steps.revision == at_once.revision
