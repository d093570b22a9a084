"""What a test run takes from the environment of whoever started it."""

from typing import Final

KEPT: Final = ("HEADRACE_TEST_", "HEADRACE_FUZZ_", "HEADRACE_PURE")
"""Meant for the tests. Everything else that begins like ours are settings, which would change what nodes do."""


def is_foreign(name: str) -> bool:
    return name.startswith("HEADRACE_") and not name.startswith(KEPT)
