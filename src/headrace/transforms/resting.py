"""How long modules rest after failures, so that one that always fails takes little from everybody else. Pure.

Failing is dearer than working: a trap throws its instance away, is told in words, and most of that holds up the event loop. A module that
fails again and again, or was stopped for taking too long, rests three times as long as it ran: whoever sends to it, and however many they are, it takes a
quarter of a worker at most. One failure between batches that went well costs nothing.
"""

from typing import Final

_FACTOR: Final = 3
_REST_MS_MAX: Final = 10_000


class Resting:
    def __init__(self, long_ms: int) -> None:
        """A failure that took `long_ms` is one too many."""
        self._long_ms = long_ms
        self._failing: dict[str, int] = {}
        """Modules whose newest batch failed, and until when they rest."""

    def worked(self, module_id: str) -> None:
        self._failing.pop(module_id, None)

    def failed(self, module_id: str, took_ms: int, now_ms: int) -> int:
        """How long it rests for this failure. Batches that were under way beside each other add up."""
        until_ms = self._failing.get(module_id)
        if until_ms is None and took_ms < self._long_ms:
            self._failing[module_id] = now_ms
            return 0
        rest_ms = min(max(took_ms, 1) * _FACTOR, _REST_MS_MAX)
        self._failing[module_id] = min(max(until_ms or 0, now_ms) + rest_ms, now_ms + _REST_MS_MAX)
        return rest_ms

    def left_ms(self, module_id: str, now_ms: int) -> int:
        """How long it still rests; zero where it may work."""
        return max(self._failing.get(module_id, now_ms) - now_ms, 0)
