"""The picture of the topics: what is older than what is known changes nothing, in whatever order it comes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.topics import NO_EPOCH, ClusterTopics
from headrace.errors import PartitionNotFound, TopicNotFound
from headrace.ids import TopicId

TOPIC_ID = TopicId(bytes(range(16)))
OTHER_ID = TopicId(bytes(range(1, 17)))


def config(partitions: int, topic_id: TopicId = TOPIC_ID, **overrides: str) -> bytes:
    return values.encode(values.topic_config(topic_id, partitions=partitions, overrides=overrides, created_ms=9))


def leader(broker_id: str, epoch: int) -> bytes:
    return values.encode(pb.PartitionLeader(broker_id=broker_id, leader_epoch=epoch, replicas=[broker_id]))


def offset(number: int) -> bytes:
    return values.encode(pb.PartitionOffset(offset=number))


HISTORY: list[tuple[str, bytes | None]] = [
    (keys.topic_config("t"), config(2, x="1")),
    (keys.leader("t", 0), leader("b1", 0)),
    (keys.leader("t", 1), leader("b2", 0)),
    (keys.ceiling("t", 1), offset(100)),
    (keys.segment("t", 1, 0), b"not about topics"),
    (keys.broker("b1"), b"not about topics"),
    (keys.log_start("t", 1), offset(7)),
    (keys.leader("t", 1), leader("b1", 3)),
    (keys.ceiling("t", 1), offset(200)),
    (keys.topic_config("t"), config(3)),
]


def replay(events: list[tuple[int, tuple[str, bytes | None]]]) -> ClusterTopics:
    topics = ClusterTopics()
    for revision, (path, value) in events:
        topics.apply(path, value, revision=revision)
    return topics


def test_keys_become_topics() -> None:
    topics = replay(list(enumerate(HISTORY, 1)))
    topic = topics.get("t")
    assert (topic.id, topic.overrides, topic.created_ms, topic.revision) == (TOPIC_ID, {}, 9, 10)
    assert topics.find_by_id(TOPIC_ID) is topic
    second = topics.partition("t", 1)
    assert (second.leader, second.leader_epoch, second.ceiling, second.log_start) == ("b1", 3, 200, 7)
    assert topics.partition("t", 2).leader_epoch == NO_EPOCH
    assert list(topics.led_by("b1")) == [("t", 0), ("t", 1)]


@given(st.randoms(use_true_random=False), st.data())
def test_order_and_repetition_make_no_difference(chance: random.Random, data: st.DataObject) -> None:
    events = list(enumerate(HISTORY, 1))
    shuffled = events + data.draw(st.lists(st.sampled_from(events)))
    chance.shuffle(shuffled)
    assert list(replay(shuffled)) == list(replay(events))


def test_a_topic_without_config_does_not_exist_yet() -> None:
    topics = replay([(1, (keys.leader("t", 0), leader("b1", 0)))])
    assert len(topics) == 0
    assert topics.find("t") is None
    topics.apply(keys.topic_config("t"), config(1), revision=2)
    assert topics.partition("t", 0).leader == "b1"


def test_a_deleted_topic_stays_deleted_whatever_arrives_late() -> None:
    topics = replay(list(enumerate(HISTORY, 1)))
    topics.apply_deletion(keys.topic("t"), revision=11)
    for revision, (path, value) in enumerate(HISTORY, 1):
        topics.apply(path, value, revision=revision)
    assert len(topics) == 0
    assert topics.find_by_id(TOPIC_ID) is None


def test_a_topic_created_again_has_nothing_of_the_old_one() -> None:
    topics = replay(list(enumerate(HISTORY, 1)))
    topics.apply(keys.topic_config("t"), None, revision=11)
    topics.apply(keys.topic_config("t"), config(2, OTHER_ID), revision=12)
    topics.apply(keys.ceiling("t", 1), offset(200), revision=9)
    assert topics.get("t").id == OTHER_ID
    assert topics.partition("t", 1).ceiling == 0
    topics.apply(keys.topic_config("t"), None, revision=11)
    assert topics.find_by_id(OTHER_ID) is not None


def test_deleting_one_topic_leaves_its_namesakes() -> None:
    topics = ClusterTopics()
    for revision, name in enumerate(["a", "ab", "a.b", "a-b"], 1):
        topics.apply(keys.topic_config(name), config(1, TopicId(bytes([revision]) * 16)), revision=revision)
    topics.apply_deletion(keys.topic("a"), revision=9)
    assert sorted(topic.name for topic in topics) == ["a-b", "a.b", "ab"]


def test_what_is_not_there_is_named_in_the_error() -> None:
    topics = replay(list(enumerate(HISTORY, 1)))
    with pytest.raises(TopicNotFound, match="'u'"):
        topics.get("u")
    with pytest.raises(PartitionNotFound, match="no partition 3"):
        topics.partition("t", 3)
    with pytest.raises(PartitionNotFound):
        topics.partition("t", -1)
