import json

import pytest

from headrace.cli.doors import Received
from headrace.cli.records import formatter, parse_headers, parse_separator, split_line
from headrace.errors import Invalid

RECORD = Received(
    topic="orders",
    partition=2,
    offset=41,
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"v\xff",
    headers=(("source", b"cli"), ("empty", None)),
)


@pytest.mark.parametrize(
    ("line", "separator", "expected"),
    [
        (b"plain\n", None, (None, b"plain")),
        (b"no newline", None, (None, b"no newline")),
        (b"key:value:more\n", b":", (b"key", b"value:more")),
        (b"no separator\n", b":", (None, b"no separator")),
        (b":v\n", b":", (b"", b"v")),
        (b"\n", None, (None, b"")),
    ],
)
def test_a_line_is_a_key_and_a_value(
    line: bytes, separator: bytes | None, expected: tuple[bytes | None, bytes]
) -> None:
    assert split_line(line, separator) == expected


def test_a_separator_is_written_as_a_format_is() -> None:
    assert [parse_separator(text) for text in (":", "::", r"\t")] == [b":", b"::", b"\t"]
    with pytest.raises(Invalid, match="empty"):
        parse_separator("")


def test_values_come_out_as_they_went_in() -> None:
    assert formatter("value")(RECORD) == b"v\xff\n"
    assert formatter("key-value")(RECORD) == b"k\tv\xff\n"


def test_a_template_names_any_field() -> None:
    template = r"{topic}-{partition}@{offset}\t{timestamp} {key} {headers}"
    assert formatter(template)(RECORD) == b"orders-2@41\t1700000000000 k source=cli,empty=\n"


def test_a_value_that_looks_like_a_template_is_left_alone() -> None:
    record = Received(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=b"{key}")
    assert formatter("{value}")(record) == b"{key}\n"


def test_json_keeps_what_is_not_text() -> None:
    document = json.loads(formatter("json")(RECORD))
    assert document["key"] == "k"
    assert document["value"] == {"base64": "dv8="}
    assert document["headers"] == [["source", "cli"], ["empty", None]]


@pytest.mark.parametrize("form", ["{colour}", "yaml"])
def test_a_format_that_means_nothing_is_refused(form: str) -> None:
    with pytest.raises(Invalid, match="--format"):
        formatter(form)


def test_headers_are_pairs() -> None:
    assert parse_headers(["a=1", "b=x=y"]) == [("a", b"1"), ("b", b"x=y")]
    with pytest.raises(Invalid, match="NAME=VALUE"):
        parse_headers(["a"])


HOSTILE = b"\x1b]0;owned\x07\xc2\x9b2J\r\xe2\x80\xae\xff ok\n\xe6\x9c\xa8"


def test_on_a_terminal_what_records_hold_is_shown_and_not_obeyed() -> None:
    record = Received(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=HOSTILE, value=HOSTILE, headers=(("\x1bc", HOSTILE),)
    )
    shown = "\\x1b]0;owned\\x07\\x9b2J\\r\\u202e\\xff ok\n木".encode()
    assert formatter("value", is_for_terminal=True)(record) == shown + b"\n"
    assert formatter("{key}|{headers}", is_for_terminal=True)(record) == shown + b"|\\x1bc=" + shown + b"\n"
    coloured = formatter("\x1b[1m{offset}\x1b[0m", is_for_terminal=True)
    assert coloured(record) == b"\x1b[1m0\x1b[0m\n", "the template is the operator's own"
    assert formatter("value")(record) == HOSTILE + b"\n"


def test_json_on_a_terminal_says_the_same_and_moves_no_cursor() -> None:
    text = HOSTILE.replace(b"\xff", b"")
    record = Received(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=text)
    shown = formatter("json", is_for_terminal=True)(record)
    assert json.loads(shown) == json.loads(formatter("json")(record))
    assert shown.decode().rstrip("\n").isprintable()
