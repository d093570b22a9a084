"""Regular expressions over names, in RE2: its syntax is what KIP-848 promises, and its time is linear in the name.

Python's `re` backtracks: `(a+)+$` on a name of forty letters would stop the broker for years. RE2 has no back-references
and no look-around, and follows all ways through a pattern at once. That still costs up to the size of the pattern for each
character, so what a pattern may cost is bounded before it runs.
"""

from collections.abc import Iterable
from typing import Final

import re2

LENGTH_MAX: Final = 1_000
"""Characters in a pattern."""
_MEMORY_MAX: Final = 256 * 1024
"""For one pattern; one whose automaton does not fit is refused. `(a?){700}b` fits, `((a{99}){99}){99}` does not."""
_STEPS_MAX: Final = 60_000_000
"""Instructions of the pattern times characters of all names: at 3 ns a step it takes the loop less than 200 ms, once."""


class InvalidPattern(ValueError):
    """Not a pattern we take; the message says why."""


class NamePattern:
    """A compiled pattern; it has to match the whole name."""

    def __init__(self, text: str) -> None:
        if not text or len(text) > LENGTH_MAX:
            raise InvalidPattern(f"a pattern has 1 to {LENGTH_MAX} characters")
        try:
            self._pattern = re2.compile(text, _options())
        except (re2.error, UnicodeError) as error:
            raise InvalidPattern(_reason(error)) from error

    def matches(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """Those that match. `InvalidPattern` when there are too many to ask with a pattern like this."""
        asked = list(names)
        self.check_cost(asked)
        return frozenset(name for name in asked if self.matches(name))

    def check_cost(self, names: Iterable[str]) -> None:
        if self._pattern.programsize * sum(map(len, names)) > _STEPS_MAX:
            raise InvalidPattern("the pattern is too complex for as many names as there are")


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY_MAX
    return options


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
