"""Topic patterns agree with `re` where both speak, and never take long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.groups.consumer.pattern import InvalidPattern, NamePattern

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
    "text", ["", "(", ")", "a**", "*a", "[a", r"\1", "(?=a)", "(?P<x>a)", "a{2,1}", "a{1001}", "[b-a]", r"\q",
             "((((a{99}){99}){99}){99})", "a" * 1001, "a{", "[[:nope:]]"]
)  # fmt: skip
def test_what_cannot_be_served_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        NamePattern(text)


def test_hostile_pattern_takes_linear_time() -> None:
    pattern = NamePattern("(a+)+(a|aa)*(a*)*$")
    assert not pattern.matches("a" * 249 + "!")
