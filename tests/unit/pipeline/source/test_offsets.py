import pytest

from headrace.pipeline.source.errors import TopicRecreated
from headrace.pipeline.source.offsets import Position, TopicPartition

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
