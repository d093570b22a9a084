"""Assignors: everything assigned once, evenly, to somebody who asked, with few moves."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)

T, U = b"t" * 16, b"u" * 16


def subscriber(name: str, *topics: bytes, has: Assignment | None = None) -> Subscriber:
    return Subscriber(
        member_id=name, instance_id=None, topics=frozenset(topics), has=(has or {}).get(name, frozenset())
    )


def partitions(assignment: Assignment, member_id: str, topic: bytes = T) -> list[int]:
    return sorted(partition for topic_id, partition in assignment[member_id] if topic_id == topic)


def test_range_lines_up_topics_of_equal_size() -> None:
    given_out = assign_range([subscriber("a", T, U), subscriber("b", T, U)], {T: 3, U: 3})
    assert partitions(given_out, "a") == partitions(given_out, "a", U) == [0, 1]
    assert partitions(given_out, "b") == partitions(given_out, "b", U) == [2]


def test_uniform_takes_from_the_rich_only_what_the_newcomer_needs() -> None:
    before = assign_uniform([subscriber("a", T), subscriber("b", T)], {T: 6})
    after = assign_uniform([subscriber(each, T, has=before) for each in "abc"], {T: 6})
    assert [len(after[each]) for each in "abc"] == [2, 2, 2]
    assert after["a"] <= before["a"]
    assert after["b"] <= before["b"]


def test_uniform_evens_out_different_subscriptions() -> None:
    given_out = assign_uniform([subscriber("a", T, U), subscriber("b", U)], {T: 2, U: 4})
    assert len(given_out["a"]) == len(given_out["b"]) == 3
    assert partitions(given_out, "a") == [0, 1]


topics = st.dictionaries(st.sampled_from([bytes([each]) * 16 for each in range(4)]), st.integers(0, 9))


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], Mapping[bytes, int]]:
    counts = draw(topics)
    partitions = [(topic, index) for topic, count in counts.items() for index in range(count + 1)]
    members = draw(st.integers(0, 6))
    subscribers = [
        Subscriber(
            member_id=f"m{index}",
            instance_id=None,
            topics=frozenset(draw(st.sets(st.sampled_from(sorted(counts)))) if counts else ()),
            has=frozenset(draw(st.sets(st.sampled_from(partitions))) if partitions else ()),
        )
        for index in range(members)
    ]
    return subscribers, counts


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_exactly_one_member_that_asked(
    group: tuple[list[Subscriber], Mapping[bytes, int]], name: str
) -> None:
    subscribers, counts = group
    given_out = ASSIGNORS[name](subscribers, counts)
    assert given_out.keys() == {each.member_id for each in subscribers}
    partitions = [partition for share in given_out.values() for partition in share]
    wanted = set().union(*(each.topics for each in subscribers)) if subscribers else set()
    assert sorted(partitions) == sorted((t, p) for t, count in counts.items() if t in wanted for p in range(count))
    for each in subscribers:
        assert {topic for topic, _ in given_out[each.member_id]} <= each.topics


@given(groups())
def test_uniform_is_even_when_all_ask_for_the_same(
    group: tuple[list[Subscriber], Mapping[bytes, int]],
) -> None:
    subscribers, counts = group
    same = [
        Subscriber(member_id=each.member_id, instance_id=None, topics=frozenset(counts), has=each.has)
        for each in subscribers
    ]
    loads = [len(share) for share in assign_uniform(same, counts).values()]
    assert max(loads, default=0) - min(loads, default=0) <= 1


@given(groups())
def test_uniform_moves_nothing_when_nothing_changes(
    group: tuple[list[Subscriber], Mapping[bytes, int]],
) -> None:
    subscribers, counts = group
    once = assign_uniform(subscribers, counts)
    again = [
        Subscriber(member_id=each.member_id, instance_id=None, topics=each.topics, has=once[each.member_id])
        for each in subscribers
    ]
    assert assign_uniform(again, counts) == once
