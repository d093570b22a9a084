import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.source.errors import TopicRecreated
from headrace.pipeline.source.offsets import Position, TopicPartition, limit_offsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_positions_survive_json_with_kafkas_shape() -> None:
    position = Position(offsets={A1: 7, A0: 5, B0: 1}, topic_ids={"a": "id-a", "b": "id-b"})
    document = position.to_json()
    assert {name: document[name] for name in "ab"} == {"a": {"0": 5, "1": 7}, "b": {"0": 1}}
    assert Position.from_json(document) == position


def test_offsets_of_kafkas_source_are_taken_as_they_are() -> None:
    assert Position.from_json({"a": {"0": 5}}) == Position(offsets={A0: 5}, topic_ids={})


def test_a_recreated_topic_is_a_loud_error_unless_loss_is_no_matter() -> None:
    position = Position(offsets={A0: 5, B0: 7}, topic_ids={"a": "old", "b": "b"})
    assert position.within({"a": "old", "c": "new"}, is_loss_fatal=True) is position
    with pytest.raises(TopicRecreated, match="a was deleted and created again"):
        position.within({"a": "new"}, is_loss_fatal=True)
    assert position.within({"a": "new"}, is_loss_fatal=False) == Position(offsets={B0: 7}, topic_ids={"b": "b"})


def test_a_limit_is_shared_by_what_is_waiting() -> None:
    start, end = {A0: 0, A1: 0, B0: 10}, {A0: 900, A1: 100, B0: 10}
    assert limit_offsets(start, end, 100) == {A0: 90, A1: 10, B0: 10}


@given(
    waiting=st.lists(st.integers(0, 10_000), min_size=1, max_size=20),
    records_max=st.integers(1, 20_000),
)
def test_a_limited_query_always_gets_on_and_never_overshoots_by_more_than_one_each(
    waiting: list[int], records_max: int
) -> None:
    start = {TopicPartition("t", i): 100 * i for i in range(len(waiting))}
    end = {place: start[place] + waiting[place.partition] for place in start}
    limited = limit_offsets(start, end, records_max)
    taken = {place: limited[place] - start[place] for place in start}
    assert all(0 <= taken[place] <= waiting[place.partition] for place in start)
    assert all(taken[place] > 0 for place in start if waiting[place.partition])
    assert sum(taken.values()) <= max(records_max, len(waiting)) + len(waiting)
