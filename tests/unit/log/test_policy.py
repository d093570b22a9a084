"""The one number that tells the fast append about a topic's rules."""

import pytest

from headrace.log.policy import (
    _LIMITS,
    _NOT_OF_APPENDS,
    _PLAIN_VALUES,
    PLAIN_AHEAD_MS,
    Durability,
    TopicPolicy,
    plain_size_max,
)


def test_each_rule_says_what_it_means_for_the_fast_append() -> None:
    """A new field is in none of the three: topics would take the slow append, whatever the field's value."""
    declared = [*_PLAIN_VALUES, *_NOT_OF_APPENDS, *_LIMITS]
    assert sorted(declared) == sorted(TopicPolicy.__struct_fields__)
    assert plain_size_max(TopicPolicy()) == TopicPolicy().message_bytes_max


@pytest.mark.parametrize(
    ("policy", "size_max"),
    [
        (TopicPolicy(durability=Durability.OBJECT), 0),
        (TopicPolicy(uses_append_time=True), 0),
        (TopicPolicy(timestamp_before_ms=2**63 - 2), 0),
        (TopicPolicy(is_compacted=True), 0),
        (TopicPolicy(timestamp_after_ms=PLAIN_AHEAD_MS - 1), 0),
        (TopicPolicy(timestamp_after_ms=PLAIN_AHEAD_MS + 1), 1_048_588),
        (TopicPolicy(message_bytes_max=100), 100),
        (TopicPolicy(message_bytes_max=2**70), 2**31 - 1),
        (TopicPolicy(retention_ms=1, retention_bytes=1, delete_retention_ms=1, compaction_lag_min_ms=1), 1_048_588),
    ],
)
def test_what_makes_a_topic_special(policy: TopicPolicy, size_max: int) -> None:
    assert plain_size_max(policy) == size_max


class Forbidding(TopicPolicy, frozen=True, kw_only=True):
    is_forbidden: bool = True


class Allowing(TopicPolicy, frozen=True, kw_only=True):
    is_forbidden: bool = False


@pytest.mark.parametrize("policy", [Forbidding(), Allowing()])
def test_a_rule_nobody_has_declared_leaves_nothing_plain(policy: TopicPolicy) -> None:
    assert plain_size_max(policy) == 0
