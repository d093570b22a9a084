"""What follows from access rules. `tests/interop/test_access_against_kafka.py` compares the same with a real broker."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.access.rules import Filter, Rule, Rules
from headrace.broker.access.words import Operation, Pattern, Permission, Principal, Resource

ALICE, BOB = Principal("alice"), Principal("bob")
HOST = "10.1.2.3"


def rule(
    operation: Operation,
    name: str = "orders",
    *,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    deny: bool = False,
    resource: Resource = Resource.TOPIC,
) -> Rule:
    return Rule(
        resource=resource,
        name=name,
        pattern=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def may(
    rules: list[Rule],
    operation: Operation,
    name: str = "orders",
    *,
    who: Principal = ALICE,
    host: str = HOST,
    otherwise: bool = False,
) -> bool:
    return Rules(rules).allows(who, host, operation, Resource.TOPIC, name, otherwise=otherwise)


def test_without_a_rule_the_answer_is_what_the_node_was_told() -> None:
    assert not may([], Operation.READ)
    assert may([], Operation.READ, otherwise=True)
    # A rule for somebody else speaks of the resource: then who is not named may nothing.
    assert not may([rule(Operation.READ, principal="User:bob")], Operation.READ, otherwise=True)


def test_a_rule_is_for_one_principal_one_operation_and_one_name() -> None:
    rules = [rule(Operation.READ)]
    assert may(rules, Operation.READ)
    assert not may(rules, Operation.WRITE)
    assert not may(rules, Operation.READ, who=BOB)
    assert not may(rules, Operation.READ, name="order")
    assert not may(rules, Operation.READ, name="orders2")
    assert not Rules(rules).allows(ALICE, HOST, Operation.READ, Resource.GROUP, "orders", otherwise=False)
    assert may([rule(Operation.READ, principal="User:*")], Operation.READ, who=BOB)
    assert may([rule(Operation.ALL)], Operation.ALTER_CONFIGS)


def test_prefixes_and_stars() -> None:
    prefixed = [rule(Operation.READ, "ord", pattern=Pattern.PREFIXED)]
    assert may(prefixed, Operation.READ)
    assert may(prefixed, Operation.READ, name="ord")
    assert not may(prefixed, Operation.READ, name="or")
    star = [rule(Operation.READ, "*")]
    assert may(star, Operation.READ, name="anything")
    # A star is a star only by itself, and only in a literal pattern.
    assert not may([rule(Operation.READ, "ord*")], Operation.READ)
    assert not may([rule(Operation.READ, "*", pattern=Pattern.PREFIXED)], Operation.READ)


@pytest.mark.parametrize("implying", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_allowing_implies_describing_and_denying_implies_nothing(implying: Operation) -> None:
    assert may([rule(implying)], Operation.DESCRIBE)
    assert may([rule(Operation.DESCRIBE), rule(implying, deny=True)], Operation.DESCRIBE)


def test_altering_configs_implies_describing_them() -> None:
    assert may([rule(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not may([rule(Operation.ALTER_CONFIGS)], Operation.DESCRIBE)
    assert not may([rule(Operation.CREATE)], Operation.DESCRIBE)


@pytest.mark.parametrize(
    "denial",
    [
        rule(Operation.READ, deny=True),
        rule(Operation.ALL, deny=True),
        rule(Operation.READ, "*", deny=True),
        rule(Operation.READ, "o", pattern=Pattern.PREFIXED, deny=True),
        rule(Operation.READ, principal="User:*", deny=True),
        rule(Operation.READ, host=HOST, deny=True),
        rule(Operation.READ, host="10.0.0.0/8", deny=True),
    ],
)
def test_a_denial_wins_over_everything_that_allows(denial: Rule) -> None:
    allowing = [rule(Operation.ALL), rule(Operation.READ, "*"), rule(Operation.READ, "ord", pattern=Pattern.PREFIXED)]
    assert may(allowing, Operation.READ)
    assert not may([*allowing, denial], Operation.READ)


def test_hosts_are_addresses_networks_or_a_star() -> None:
    assert may([rule(Operation.READ, host=HOST)], Operation.READ)
    assert not may([rule(Operation.READ, host="10.1.2.4")], Operation.READ)
    assert may([rule(Operation.READ, host="10.1.0.0/16")], Operation.READ)
    assert not may([rule(Operation.READ, host="10.2.0.0/16")], Operation.READ)
    assert not may([rule(Operation.READ, host="fd00::/8")], Operation.READ)
    assert may([rule(Operation.READ, host="fd00::/8")], Operation.READ, host="fd00::1")


def may_any(rules: list[Rule]) -> bool:
    return Rules(rules).allows_any(ALICE, HOST, Operation.WRITE, Resource.TOPIC)


def test_whether_any_topic_may_be_written_to() -> None:
    w = Operation.WRITE
    assert not may_any([])
    assert may_any([rule(w)])
    assert not may_any([rule(Operation.READ)])
    assert not may_any([rule(w, principal="User:bob")])
    assert not may_any([rule(w), rule(w, deny=True)])
    assert not may_any([rule(w), rule(w, "ord", pattern=Pattern.PREFIXED, deny=True)])
    assert not may_any([rule(w, "ord", pattern=Pattern.PREFIXED), rule(w, "o", pattern=Pattern.PREFIXED, deny=True)])
    assert not may_any([rule(w, "*"), rule(w, "*", deny=True)])
    # What is denied leaves something of what is allowed.
    assert may_any([rule(w, "ord", pattern=Pattern.PREFIXED), rule(w, "orders", deny=True)])
    assert may_any([rule(w, "*"), rule(w, "ord", pattern=Pattern.PREFIXED, deny=True)])
    assert may_any([rule(w), rule(Operation.READ, deny=True)])


names = st.text("ab", min_size=1, max_size=3) | st.just("*")
some_rules = st.builds(
    rule,
    st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]),
    names,
    pattern=st.sampled_from(Pattern),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", HOST, "10.9.9.9"]),
    deny=st.booleans(),
)


@given(st.lists(some_rules, max_size=6), st.sampled_from(Operation), st.text("ab", min_size=1, max_size=3))
def test_the_index_finds_what_looking_at_every_rule_finds(rules: list[Rule], operation: Operation, name: str) -> None:
    about = [each for each in rules if each.speaks_of(name)]
    holding = [each for each in about if each.concerns(ALICE, HOST) and each.covers(operation)]
    for otherwise in (False, True):
        expected = otherwise
        if about:
            is_denied = any(each.permission is Permission.DENY for each in holding)
            expected = bool(holding) and not is_denied
        assert may(rules, operation, name, otherwise=otherwise) is expected


@given(st.lists(some_rules, max_size=6, unique=True))
def test_a_rule_that_is_taken_away_leaves_no_trace(rules: list[Rule]) -> None:
    kept = Rules(rules)
    for each in rules[::2]:
        kept.remove(each)
    assert sorted(kept) == sorted(rules[1::2])


@given(st.lists(some_rules, min_size=2, max_size=2, unique=True))
def test_rules_that_differ_have_different_digests(rules: list[Rule]) -> None:
    assert rules[0].digest != rules[1].digest


def test_filters_ask_for_a_name_or_for_all_that_speak_of_it() -> None:
    rules = [
        rule(Operation.READ, name, pattern=pattern)
        for name, pattern in itertools.product(("orders", "ord", "*"), Pattern)
    ]

    def found(wanted: Filter) -> set[tuple[str, Pattern]]:
        return {(each.name, each.pattern) for each in rules if wanted.takes(each)}

    assert len(found(Filter())) == 6
    assert found(Filter(name="ord")) == {("ord", Pattern.LITERAL), ("ord", Pattern.PREFIXED)}
    assert found(Filter(name="ord", pattern=Pattern.PREFIXED)) == {("ord", Pattern.PREFIXED)}
    assert found(Filter(name="orders", is_match=True)) == {
        ("orders", Pattern.LITERAL),
        ("orders", Pattern.PREFIXED),
        ("ord", Pattern.PREFIXED),
        ("*", Pattern.LITERAL),
    }
    assert found(Filter(principal="User:bob")) == set()
