"""A circuit breaker: events in, a verdict out, time as an argument.

*Closed*: requests pass; failures in a row are counted. *Open*: they fail at once until the pause is over.
*Half-open*: one request is let through; its success closes the circuit, its failure opens it for another pause.
"""

from enum import Enum


class CircuitState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Circuit:
    __slots__ = ("_failures", "_failures_max", "_open_ms", "_opened_ms", "state")

    def __init__(self, *, failures_max: int, open_ms: int) -> None:
        self._failures_max = failures_max
        self._open_ms = open_ms
        self._failures = 0
        self._opened_ms = 0
        self.state = CircuitState.CLOSED

    def admits(self, now_ms: int) -> bool:
        """Whether a request may go out now. In the half-open state only the first asker may."""
        match self.state:
            case CircuitState.CLOSED:
                return True
            case CircuitState.HALF_OPEN:
                return False
            case CircuitState.OPEN:
                if self.is_blocking(now_ms):
                    return False
                self.state = CircuitState.HALF_OPEN
                return True

    def is_blocking(self, now_ms: int) -> bool:
        """Whether a request would be refused now. Unlike `admits` it takes nobody's place."""
        if self.state is CircuitState.OPEN:
            return now_ms - self._opened_ms < self._open_ms
        return self.state is CircuitState.HALF_OPEN

    def succeeded(self) -> None:
        self._failures = 0
        self.state = CircuitState.CLOSED

    def failed(self, now_ms: int) -> None:
        self._failures += 1
        if self.state is CircuitState.HALF_OPEN or self._failures >= self._failures_max:
            self.open(now_ms)

    def open(self, now_ms: int) -> None:
        """The store is known to be down: nobody has to find out one failure at a time."""
        self.state = CircuitState.OPEN
        self._opened_ms = now_ms

    def abandoned(self) -> None:
        """The request was cancelled and says nothing of the store. A probe's place becomes free again."""
        if self.state is CircuitState.HALF_OPEN:
            self.state = CircuitState.OPEN
