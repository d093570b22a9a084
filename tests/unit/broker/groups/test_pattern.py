"""Topic patterns agree with `re` where both speak, and never take long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.steps import Steps

from headrace.broker.groups.consumer.events import TopicShape
from headrace.broker.groups.consumer.member import Member
from headrace.broker.groups.consumer.pattern import InvalidPattern, NamePattern
from headrace.broker.groups.consumer.topics import KnownTopics

PATTERNS = [
    "orders", "orders.*", r"orders\..+", "[a-c]+", "[^a-c]*", "(ab|cd)*e?", "a{2}", "a{2,}b", "a{0,3}b{1,2}", "^abc$",
    r"\w+-\d+", "(?:a|b)c", "a|", "(a+)+b", ".*a.{3}", "[]a]+", r"[\d\-x]+", "x*?y", "(^a|b)c", "[-a]b", "a.c", "(a*)*",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
@given(name=st.text("abcdeorsx.-_0123y]", max_size=12))
def test_pattern_agrees_with_re(text: str, name: str) -> None:
    assert NamePattern(text).matches(name) == (re.fullmatch(text, name) is not None)


@given(st.text("ab(|)*+?{1,2}[]^$.\\d-:", max_size=12), st.text("ab1", max_size=6))
def test_any_text_is_a_pattern_or_refused(text: str, name: str) -> None:
    try:
        pattern = NamePattern(text)
    except InvalidPattern:
        return
    try:
        same = re.compile(text)
    except (re.error, OverflowError):
        return
    if not re.search(r"\{(?!\d)|\[\[|\[\^?\]|[*+?}]\+|\{,|(?<!\{)\}|\(\?|\|\||--|&&|~~", text):
        assert pattern.matches(name) == (same.fullmatch(name) is not None)


def test_named_classes_are_understood() -> None:
    assert NamePattern("[[:alpha:]_]+[[:digit:]]").matches("abc_1")
    assert not NamePattern("[[:alpha:]]+").matches("abc1")


@pytest.mark.parametrize(
    "text", ["", "(", ")", "a**", "*a", "[a", r"\1", "(?=a)", "a{2,1}", "a{1001}", "[b-a]", r"\q",
             "((((a{99}){99}){99}){99})", "a" * 1001, "[[:nope:]]", "(?<=a)b", "\ud800"]
)  # fmt: skip
def test_what_cannot_be_served_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        NamePattern(text)


def test_hostile_pattern_takes_linear_time() -> None:
    pattern = NamePattern("(a+)+(a|aa)*(a*)*$")
    assert not pattern.matches("a" * 249 + "!")


@pytest.mark.parametrize("text", ["(a?){700}b", "((a?){30}b?){30}c", "[ab]*a[ab]{200}c", ".*" * 300 + "b"])
def test_a_pattern_that_grows_with_every_letter_is_answered_soon(text: str) -> None:
    """An automaton in Python took ten seconds for one name: the interpreter takes some steps for a name, none for a letter."""
    names = ["a" * 100 + f"{number:03}" for number in range(200)]
    steps = Steps()
    with steps.counted():
        assert not NamePattern(text).select(names)
    assert steps.count < 300 * len(names)


def test_a_costly_pattern_is_refused_before_it_runs_over_very_many_names() -> None:
    with pytest.raises(InvalidPattern, match="too complex"):
        NamePattern("(a?){700}b").select("a" * 249 for _ in range(1000))
    assert len(NamePattern("orders-.*").select(f"orders-{number}" for number in range(10_000))) == 10_000


def test_what_a_pattern_found_is_kept_until_the_topics_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(NamePattern, "matches", lambda _, name: asked.append(name) or True)  # type: ignore[func-returns-value]
    shapes = {name: TopicShape(topic_id=name.encode(), partition_count=1) for name in ("a", "b")}
    topics, member = KnownTopics(shapes), Member(member_id="m", topic_regex=".")
    assert topics.topics_of(member) == topics.topics_of(member) == {"a", "b"}
    assert asked == ["a", "b"]
    topics.shapes = {"a": shapes["a"]}
    assert topics.topics_of(member) == {"a"}


def test_a_pattern_of_an_earlier_release_that_is_none_matches_nothing() -> None:
    topics = KnownTopics({"a": TopicShape(topic_id=b"a", partition_count=1)})
    assert topics.topics_of(Member(member_id="m", topic_regex="((((a{99}){99}){99}){99})")) == set()
