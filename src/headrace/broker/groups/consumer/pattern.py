"""Regular expressions over names, in time proportional to pattern and name.

Clients of KIP-848 send RE2 syntax and the coordinator has to run it. Python's `re` backtracks: `(a+)+$` on a name of
forty letters would stop the broker for years. So patterns become a small automaton whose states are followed all
at once. Taken: literals, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`, `* + ? {m,n}` (lazy forms mean
the same when only "does it match" is asked), `^` and `$`. What RE2 does not have, back-references and look-around,
is refused here too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

LENGTH_MAX = 1_000
"""Characters in a pattern."""
STATES_MAX = 5_000
"""Size of the automaton: `{m,n}` multiplies, nested ones more so."""

_DIGITS = frozenset("0123456789")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_SPACE = frozenset(" \t\n\r\f\v")
_SHORTHANDS = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_NAMED = {
    "alnum": _WORD - {"_"},
    "alpha": _WORD - _DIGITS - {"_"},
    "digit": _DIGITS,
    "lower": frozenset("abcdefghijklmnopqrstuvwxyz"),
    "upper": frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "word": _WORD,
    "space": _SPACE,
    "punct": frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}

Test = Callable[[str], bool]


class InvalidPattern(ValueError):
    """Not a pattern we take; the message says why."""


@dataclass(slots=True)
class _State:
    test: Test | None = None
    """None: the state consumes nothing."""
    after: list[int] = field(default_factory=list)
    anchor: str = ""
    """`^` or `$`: passable only there."""


class NamePattern:
    """A compiled pattern; `matches` asks for the whole name."""

    def __init__(self, text: str) -> None:
        if not text or len(text) > LENGTH_MAX:
            raise InvalidPattern(f"a pattern has 1 to {LENGTH_MAX} characters")
        parser = _Parser(text)
        self._states = parser.states
        self._start, self._accept = parser.parse()

    def matches(self, name: str) -> bool:
        current = self._closure({self._start}, is_start=True, is_end=not name)
        for index, character in enumerate(name):
            reached = {
                target
                for each in current
                if (test := self._states[each].test) is not None and test(character)
                for target in self._states[each].after
            }
            current = self._closure(reached, is_start=False, is_end=index == len(name) - 1)
            if not current:
                return False
        return self._accept in current

    def _closure(self, states: set[int], *, is_start: bool, is_end: bool) -> set[int]:
        """All states that can be reached without consuming a character."""
        waiting = list(states)
        seen = set(states)
        while waiting:
            state = self._states[waiting.pop()]
            is_blocked = (state.anchor == "^" and not is_start) or (state.anchor == "$" and not is_end)
            if state.test is not None or is_blocked:
                continue
            for target in state.after:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen


Piece = tuple[int, int]
"""First and last state of a part of the automaton."""


class _Parser:
    """Recursive descent; repetition re-reads the text of what it repeats, so states are never shared."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.states: list[_State] = []
        self._position = 0
        self._depth = 0

    def parse(self) -> Piece:
        piece = self._alternatives()
        if self._position < len(self.text):
            raise InvalidPattern(f"unexpected {self._peek()!r} at {self._position}")
        return piece

    def _peek(self) -> str:
        return self.text[self._position : self._position + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPattern("the pattern ends too early")
        self._position += 1
        return character

    def _state(self, test: Test | None = None, anchor: str = "") -> int:
        if len(self.states) >= STATES_MAX:
            raise InvalidPattern("the pattern is too complex")
        self.states.append(_State(test=test, anchor=anchor))
        return len(self.states) - 1

    def _link(self, source: int, target: int) -> None:
        self.states[source].after.append(target)

    def _alternatives(self) -> Piece:
        pieces = [self._sequence()]
        while self._peek() == "|":
            self._take()
            pieces.append(self._sequence())
        if len(pieces) == 1:
            return pieces[0]
        start, end = self._state(), self._state()
        for first, last in pieces:
            self._link(start, first)
            self._link(last, end)
        return start, end

    def _sequence(self) -> Piece:
        start = end = self._state()
        while self._peek() not in ("", "|", ")"):
            first, last = self._repeated()
            self._link(end, first)
            end = last
        return start, end

    def _repeated(self) -> Piece:
        begin = self._position
        piece = self._atom()
        bounds = self._quantifier()
        if bounds is None:
            return piece
        resume = self._position
        low, high = bounds
        piece = self._copies(piece, begin, low, high)
        self._position = resume
        return piece

    def _quantifier(self) -> tuple[int, int | None] | None:
        bounds: tuple[int, int | None] | None
        match self._peek():
            case "*":
                bounds = (0, None)
            case "+":
                bounds = (1, None)
            case "?":
                bounds = (0, 1)
            case "{":
                return self._braces()
            case _:
                return None
        self._take()
        return self._after_quantifier(bounds)

    def _braces(self) -> tuple[int, int | None]:
        close = self.text.find("}", self._position)
        low, comma, high = self.text[self._position + 1 : close].partition(",")
        if close < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise InvalidPattern("braces hold one or two numbers")
        self._position = close + 1
        last = None if comma and not high else int(high or low)
        if int(low) > 1000 or (last is not None and not int(low) <= last <= 1000):
            raise InvalidPattern("repeat counts go from 0 to 1000, in order")
        return self._after_quantifier((int(low), last))

    def _after_quantifier(self, bounds: tuple[int, int | None]) -> tuple[int, int | None]:
        if self._peek() == "?":
            self._take()
        if self._peek() in ("*", "+", "?"):
            raise InvalidPattern("nothing to repeat")
        return bounds

    def _copies(self, first_copy: Piece, begin: int, low: int, high: int | None) -> Piece:
        """`low` copies in a row, then a loop or as many optional ones as are left."""
        start = end = self._state()
        spare: Piece | None = first_copy
        finish = self._state()
        for index in range(max(low, 1) if high is None else high):
            if spare is None:
                self._position = begin
                spare = self._atom()
            first, last = spare
            spare = None
            if index >= low:
                self._link(end, finish)
            self._link(end, first)
            if high is None and index >= low - 1:
                self._link(last, first)
            end = last
        self._link(end, finish)
        return start, finish

    def _atom(self) -> Piece:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._consume(self._class())
            case ".":
                return self._consume(lambda each: each != "\n")
            case "\\":
                return self._escape()
            case "^" | "$":
                state = self._state(anchor=character)
                end = self._state()
                self._link(state, end)
                return state, end
            case "*" | "+" | "?":
                raise InvalidPattern("nothing to repeat")
            case _:
                return self._consume(character.__eq__)

    def _consume(self, test: Test) -> Piece:
        state, end = self._state(test), self._state()
        self._link(state, end)
        return state, end

    def _group(self) -> Piece:
        if self._peek() == "?":
            self._take()
            if self._take() != ":":
                raise InvalidPattern("only (...) and (?:...) groups are taken")
        self._depth += 1
        if self._depth > 50:
            raise InvalidPattern("groups are nested too deeply")
        piece = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise InvalidPattern("a group is not closed")
        self._take()
        return piece

    def _escape(self) -> Piece:
        character = self._take()
        if character.lower() in _SHORTHANDS:
            members = _SHORTHANDS[character.lower()]
            wanted = character.islower()
            return self._consume(lambda each: (each in members) is wanted)
        if character in "Az":
            state, end = self._state(anchor="^" if character == "A" else "$"), self._state()
            self._link(state, end)
            return state, end
        return self._consume(self._literal(character).__eq__)

    def _literal(self, escaped: str) -> str:
        if escaped in _ESCAPES:
            return _ESCAPES[escaped]
        if escaped.isalnum():
            raise InvalidPattern(f"unknown escape \\{escaped}")
        return escaped

    def _class(self) -> Test:
        is_negated = self._peek() == "^"
        if is_negated:
            self._take()
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        is_first = True
        while (character := self._take()) != "]" or is_first:
            is_first = False
            if character == "[" and self._peek() == ":":
                singles |= self._named_class()
                continue
            if character == "\\":
                character = self._take()
                if character in _SHORTHANDS:
                    singles |= _SHORTHANDS[character]
                    continue
                character = self._literal(character)
            if self._peek() == "-" and self.text[self._position + 1 : self._position + 2] not in ("]", ""):
                self._take()
                last = self._take()
                last = self._literal(self._take()) if last == "\\" else last
                if last < character:
                    raise InvalidPattern("a range in a class runs backwards")
                ranges.append((character, last))
            else:
                singles.add(character)
        return lambda each: (each in singles or any(low <= each <= high for low, high in ranges)) is not is_negated

    def _named_class(self) -> frozenset[str]:
        close = self.text.find(":]", self._position)
        name = self.text[self._position + 1 : close]
        if close < 0 or name not in _NAMED:
            raise InvalidPattern("no such named class")
        self._position = close + 2
        return _NAMED[name]
