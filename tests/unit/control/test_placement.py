"""Partitions go to the broker that leads fewest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.placement import spread
from headrace.errors import NotReady

loads = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 50), min_size=1, max_size=6)


def test_the_broker_that_leads_fewest_comes_first_and_ties_go_by_name() -> None:
    assert spread(5, {"b": 0, "a": 0, "c": 2}) == ["a", "b", "a", "b", "a"]
    assert spread(2, {"b": 5, "a": 9}) == ["b", "b"]


@given(count=st.integers(0, 60), led_by=loads)
def test_nobody_gets_one_while_another_leads_fewer(count: int, led_by: dict[str, int]) -> None:
    now = dict(led_by)
    for name in spread(count, led_by):
        assert now[name] == min(now.values())
        now[name] += 1
    assert sum(now.values()) == sum(led_by.values()) + count


def test_without_a_broker_nothing_is_placed() -> None:
    assert spread(0, {}) == []
    with pytest.raises(NotReady, match="no broker"):
        spread(1, {})
