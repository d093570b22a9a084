"""How fast somebody goes, measured as Kafka measures it: in samples of a second, over the last eleven of them.

So a quota is kept over ten seconds, and a short burst passes. Pure: time is an argument.
"""

from collections import deque
from typing import Final

SAMPLE_MS: Final = 1_000
SAMPLES: Final = 11
WINDOW_S: Final = (SAMPLES - 1) * SAMPLE_MS / 1_000
"""What is counted has taken at least so long, also if it has only begun: the first second is not the whole."""


class Rate:
    """Something per second."""

    __slots__ = ("_samples", "_sum")

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        self._sum = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._sum += amount

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to stop for, until what was recorded keeps to `limit` per second."""
        window_s = self._window_s(now_ms)
        observed = self._sum / window_s
        return 0 if observed <= limit else round((observed - limit) / limit * window_s * 1_000)

    def is_idle(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return not self._samples

    def _window_s(self, now_ms: int) -> float:
        self._forget(now_ms)
        if not self._samples:
            return WINDOW_S
        elapsed_ms = now_ms - self._samples[0][0]
        missing = max(SAMPLES - 1 - int(elapsed_ms // SAMPLE_MS), 0)
        return (elapsed_ms + missing * SAMPLE_MS) / 1_000

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLES * SAMPLE_MS:
            self._sum -= samples.popleft()[1]
        if not samples:
            self._sum = 0.0
