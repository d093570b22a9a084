"""What the tests of all doors have in common."""

import pytest

from headrace.doors.turns import Turns


@pytest.fixture(autouse=True)
def turns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn ends before its time, however slow the machine. Tests of that give a clock of their own."""
    monkeypatch.setattr(Turns.__init__, "__defaults__", (lambda: 0,))
