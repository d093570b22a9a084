"""A small language for picking records out of a topic, and nothing else: no functions, no loops, no way to run anything.

    key == "alice"                       value contains "coffee"
    header.source == "web"               json.order.amount >= 100 and not json.paid == true
    offset >= 100 and offset < 200       timestamp >= 1767225600000
    key == x"00ff"                       "anything"  (in key, value or a header's value)

`json` is the value read as JSON, with names or list places after dots. What a record does not have equals nothing but
`null`, and is neither greater nor smaller than anything. Text of the filter and depth of nesting are bounded.

Every filter also knows from a batch's bytes when none of its records can match (`may_match`), which is what makes searching a
whole topic quick. It never leaves out a record that would match.
"""

import re
from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias

import msgspec

from headrace.errors import Invalid
from headrace.records.record import Record

TEXT_MAX: Final = 2000
DEPTH_MAX: Final = 32
PATH_MAX: Final = 16
_SURE_INT: Final = 2**62
_SURE_FLOAT: Final = 2**53
"""Smaller ones are the same however they are read; of greater ones only reading the JSON tells."""

_BACKSLASH: Final = 0x5C

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<hex>x"[0-9a-fA-F]*") | (?P<string>"(?:[^"\\]|\\.)*") | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<op>==|!=|<=|>=|<|>|\(|\)) | (?P<word>[A-Za-z_][^\s()=!<>"]*)
    )""",
    re.VERBOSE,
)
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}  # Any: two of one kind
_FIELDS: Final = "key, value, offset, timestamp, header.NAME, json.NAME"

Literal: TypeAlias = str | bytes | int | float | bool | None


class Candidate:
    """A record while it is looked at: its value is read as JSON once, and only if somebody asks."""

    __slots__ = ("_json", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._json: object = _UNREAD

    @property
    def json(self) -> object:
        if self._json is _UNREAD:
            try:
                self._json = msgspec.json.decode(self.record.value or b"")
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self._json = _MISSING
        return self._json


_UNREAD: Final = object()
_MISSING: Final = object()


class RecordFilter(msgspec.Struct, frozen=True):
    matches_candidate: Callable[[Candidate], bool]
    may_match: Callable[[bytes], bool]
    """Of a batch's bytes, decompressed: False when no record in it can match."""

    def matches(self, record: Record) -> bool:
        return self.matches_candidate(Candidate(record))


EVERYTHING: Final = RecordFilter(lambda candidate: True, lambda data: True)


def parse_filter(text: str) -> RecordFilter:
    """`Invalid`, with the place, for what is not a filter. No text at all lets everything through."""
    if len(text) > TEXT_MAX:
        raise Invalid(f"filter of {len(text)} characters; {TEXT_MAX} are possible")
    if not text.strip():
        return EVERYTHING
    parser = _Parser(_tokens(text))
    found = parser.either(0)
    parser.expect_end()
    return found


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    place: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Invalid(f"filter: cannot read {text[position:].strip()[:20]!r} at character {position + 1}")
        assert match.lastgroup is not None
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def either(self, depth: int) -> RecordFilter:
        parts = [self._all(depth)]
        while self._took("or"):
            parts.append(self._all(depth))
        if len(parts) == 1:
            return parts[0]
        return RecordFilter(
            lambda candidate: any(part.matches_candidate(candidate) for part in parts),
            lambda data: any(part.may_match(data) for part in parts),
        )

    def _all(self, depth: int) -> RecordFilter:
        parts = [self._one(depth)]
        while self._took("and"):
            parts.append(self._one(depth))
        if len(parts) == 1:
            return parts[0]
        return RecordFilter(
            lambda candidate: all(part.matches_candidate(candidate) for part in parts),
            lambda data: all(part.may_match(data) for part in parts),
        )

    def _one(self, depth: int) -> RecordFilter:
        if depth > DEPTH_MAX:
            raise Invalid(f"filter: nested more than {DEPTH_MAX} deep")
        if self._took("not"):
            inner = self._one(depth + 1)
            return RecordFilter(lambda candidate: not inner.matches_candidate(candidate), lambda data: True)
        if self._took("("):
            inner = self.either(depth + 1)
            if not self._took(")"):
                raise Invalid("filter: a bracket is not closed")
            return inner
        return self._comparison()

    def _comparison(self) -> RecordFilter:
        token = self._take("a field")
        if token.kind == "string":
            return _anywhere(_string(token).encode())
        if token.kind != "word":
            raise Invalid(f"filter: expected one of {_FIELDS}, got {token.text!r} at character {token.place + 1}")
        operator = self._take("an operator").text
        literal = self._literal()
        return _compared(token.text, operator, literal)

    def _literal(self) -> Literal:
        token = self._take("a value")
        match token.kind:
            case "string":
                return _string(token)
            case "hex":
                digits = token.text[2:-1]
                if len(digits) % 2:
                    raise Invalid(f"filter: {token.text} has half a byte")
                return bytes.fromhex(digits)
            case "number":
                return float(token.text) if re.search(r"[.eE]", token.text) else int(token.text)
            case "word" if token.text in _WORDS:
                return _WORDS[token.text]
            case _:
                raise Invalid(f"filter: {token.text!r} at character {token.place + 1} is no value; put text in quotes")

    def _take(self, what: str) -> _Token:
        if self._next >= len(self._tokens):
            raise Invalid(f"filter: ends where {what} should follow")
        self._next += 1
        return self._tokens[self._next - 1]

    def _took(self, text: str) -> bool:
        is_next = self._next < len(self._tokens) and self._tokens[self._next].text == text
        self._next += is_next
        return is_next

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            raise Invalid(f"filter: expected `and` or `or` before {token.text!r} at character {token.place + 1}")


_WORDS: Final[dict[str, Literal]] = {"true": True, "false": False, "null": None}


def _string(token: _Token) -> str:
    try:
        return msgspec.json.decode(token.text.encode(), type=str)
    except msgspec.DecodeError as error:
        raise Invalid(f"filter: {token.text} is no text: {error}") from error


def _anywhere(needle: bytes) -> RecordFilter:
    def matches(candidate: Candidate) -> bool:
        record = candidate.record
        return (
            needle in (record.key or b"")
            or needle in (record.value or b"")
            or any(needle in (value or b"") for _, value in record.headers)
        )

    return RecordFilter(matches, lambda data: needle in data)


def _compared(field: str, operator: str, literal: Literal) -> RecordFilter:
    root, _, rest = field.partition(".")
    if root in ("key", "value") and not rest:
        return _bytes_compared(lambda candidate: getattr(candidate.record, root), operator, literal)
    if root == "header" and rest:
        return _bytes_compared(lambda candidate: _header(candidate.record, rest), operator, literal)
    if field in ("offset", "timestamp"):
        name = "offset" if field == "offset" else "timestamp_ms"
        test = _test_of(operator, literal)
        return RecordFilter(lambda candidate: test(getattr(candidate.record, name)), lambda data: True)
    if root == "json":
        return _json_compared(rest.split(".") if rest else [], operator, literal)
    raise Invalid(f"filter: no field {field!r}; there are {_FIELDS}")


def _header(record: Record, name: str) -> bytes | None:
    return next((value for header, value in record.headers if header == name), None)


def _bytes_compared(read: Callable[[Candidate], bytes | None], operator: str, literal: Literal) -> RecordFilter:
    wanted = str(literal).encode() if isinstance(literal, str | int | float) else literal
    if isinstance(literal, bool):
        wanted = b"true" if literal else b"false"
    if operator == "contains":
        if wanted is None:
            raise Invalid("filter: `contains` needs text")
        needle = wanted
        return RecordFilter(lambda candidate: needle in (read(candidate) or b""), lambda data: needle in data)
    test = _test_of(operator, wanted)
    if operator == "==" and wanted is not None:
        return RecordFilter(lambda candidate: test(read(candidate)), lambda data: wanted in data)
    return RecordFilter(lambda candidate: test(read(candidate)), lambda data: True)


def _json_compared(path: Sequence[str], operator: str, literal: Literal) -> RecordFilter:
    if len(path) > PATH_MAX:
        raise Invalid(f"filter: a path of {len(path)} names; {PATH_MAX} are possible")
    if isinstance(literal, bytes):
        raise Invalid("filter: JSON has no bytes; compare with text")

    def read(candidate: Candidate) -> object:
        return _at(candidate.json, path)

    if operator == "contains":
        if not isinstance(literal, str):
            raise Invalid("filter: `contains` needs text in quotes")
        needle = literal
        return RecordFilter(
            lambda candidate: isinstance(text := read(candidate), str) and needle in text, _may_hold(needle)
        )
    test = _test_of(operator, literal)
    found = RecordFilter(lambda candidate: test(None if (value := read(candidate)) is _MISSING else value), _any_bytes)
    if operator == "==" and isinstance(literal, str):
        return RecordFilter(found.matches_candidate, _may_hold_string(literal))
    is_about_absence = operator == "!=" or literal is None
    if path and not is_about_absence and not path[-1].isdigit():
        if isinstance(literal, int | float) and not isinstance(literal, bool):
            return RecordFilter(found.matches_candidate, _may_hold_number(path[-1], operator, literal))
        return RecordFilter(found.matches_candidate, _may_hold_string(path[-1]))
    return found


def _any_bytes(data: bytes) -> bool:
    return True


def _may_hold_string(text: str) -> Callable[[bytes], bool]:
    """Whether JSON with exactly this string may be there."""
    return _may_hold(text, f'"{text}"')


def _may_hold(text: str, written: str | None = None) -> Callable[[bytes], bool]:
    """Whether JSON with this text in a string may be there: as it stands, or with some of its characters written as escapes.

    Any character may be written as `\\u....`; a slash also as `\\/`; quotes, backslashes and control characters have
    escapes of their own, and then only reading tells. One byte is looked for ten times as fast as two: most data has no
    backslash at all.
    """
    needle = (text if written is None else written).encode()
    if any(each in '"\\' or not each.isprintable() for each in text):
        return lambda data: needle in data or _BACKSLASH in data
    if "/" in text:
        return lambda data: needle in data or (_BACKSLASH in data and (b"\\u" in data or b"\\/" in data))
    return lambda data: needle in data or (_BACKSLASH in data and b"\\u" in data)


def _may_hold_number(name: str, operator: str, literal: float) -> Callable[[bytes], bool]:
    """Whether a number behind this name may fit: numbers are read where they stand, ten times as fast as all of the JSON."""
    if any(each in '"\\/' or not each.isprintable() for each in name):
        return _may_hold_string(name)
    behind = re.compile(re.escape(f'"{name}"'.encode()) + rb"[ \t\r\n]*:[ \t\r\n]*(-?[0-9][0-9.eE+-]*)")
    tests: dict[str, Callable[[Sequence[float]], bool]] = {
        "==": lambda numbers: literal in numbers,
        "<": lambda numbers: min(numbers) < literal,
        "<=": lambda numbers: min(numbers) <= literal,
        ">": lambda numbers: max(numbers) > literal,
        ">=": lambda numbers: max(numbers) >= literal,
    }
    fits = tests[operator]

    def may_match(data: bytes) -> bool:
        # Where something is escaped the name may be, too.
        if _BACKSLASH in data and b"\\u" in data:
            return True
        tokens = behind.findall(data)
        numbers: Sequence[float]
        try:
            numbers, sure = list(map(int, tokens)), _SURE_INT
        except ValueError:
            try:
                numbers, sure = list(map(float, tokens)), _SURE_FLOAT
            except ValueError:
                return True
        return bool(numbers) and (min(numbers) < -sure or max(numbers) > sure or fits(numbers))

    return may_match


def _at(value: object, path: Sequence[str]) -> object:
    for name in path:
        if isinstance(value, dict):
            value = value.get(name, _MISSING)
        elif isinstance(value, list) and name.isascii() and name.isdigit():
            value = value[int(name)] if int(name) < len(value) else _MISSING
        else:
            return _MISSING
    return value


def _test_of(operator: str, literal: Literal) -> Callable[[object], bool]:
    if operator == "==":
        return lambda value: _is_same(value, literal)
    if operator == "!=":
        return lambda value: not _is_same(value, literal)
    order = _ORDERS.get(operator)
    if order is None:
        raise Invalid(f"filter: no operator {operator!r}; there are ==, !=, <, <=, >, >= and contains")
    return lambda value: _is_comparable(value, literal) and order(value, literal)


def _is_same(value: object, literal: Literal) -> bool:
    """As JSON sees it: `true` is not 1."""
    return isinstance(value, bool) == isinstance(literal, bool) and value == literal


def _is_comparable(value: object, literal: Literal) -> bool:
    numbers = (int, float)
    if isinstance(value, bool) or isinstance(literal, bool):
        return False
    if isinstance(value, numbers) and isinstance(literal, numbers):
        return True
    return value is not None and type(value) is type(literal)
