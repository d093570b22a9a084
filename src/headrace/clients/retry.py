"""When to try again and when to stop trying: exponential backoff and a circuit breaker.

Both are plain values and machines: time and chance are arguments, and the clients that use them do the waiting.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from msgspec import Meta, Struct

from headrace.errors import Unavailable


class RetryPolicy(Struct, frozen=True, kw_only=True):
    attempts_max: Annotated[int, Meta(ge=1)] = 6
    """How often one request is sent at most, the first time included."""
    backoff_first_ms: Annotated[int, Meta(ge=0)] = 50
    backoff_max_ms: Annotated[int, Meta(ge=0)] = 5_000
    timeout_ms: Annotated[int, Meta(ge=1)] = 30_000
    """How long one attempt, connecting included, may take."""
    failures_to_open: Annotated[int, Meta(ge=1)] = 10
    """Failures in a row after which the breaker opens."""
    open_ms: Annotated[int, Meta(ge=0)] = 10_000
    """How long an open breaker refuses before it lets one request through to see."""

    def backoff_ms(self, attempt: int, *, chance: float) -> int:
        """How long to wait after failed attempt `attempt` (from 1): doubling, with the upper half left to chance
        so that clients which failed together do not come back together."""
        full = min(self.backoff_max_ms, self.backoff_first_ms << min(attempt - 1, 30))
        return round(full * (0.5 + chance / 2))


class CircuitOpen(Unavailable):
    """Too many failures in a row: not even tried."""


class BreakerState(Enum):
    CLOSED = "closed"
    """Requests pass; failures in a row are counted."""
    OPEN = "open"
    """Requests are refused until a moment."""
    HALF_OPEN = "half-open"
    """One request is under way to find out; others are refused."""


@dataclass(slots=True)
class CircuitBreaker:
    """Call `admit` before an attempt and `succeeded` or `failed` after it."""

    failures_to_open: int
    open_ms: int
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    opened_ms: int = 0

    def admit(self, *, now_ms: int) -> None:
        if self.state is BreakerState.CLOSED:
            return
        if self.state is BreakerState.OPEN and now_ms - self.opened_ms >= self.open_ms:
            self.state = BreakerState.HALF_OPEN
            return
        raise CircuitOpen(f"{self.failures} failures in a row")

    def succeeded(self) -> None:
        self.state = BreakerState.CLOSED
        self.failures = 0

    def failed(self, *, now_ms: int) -> None:
        self.failures += 1
        if self.state is BreakerState.HALF_OPEN or self.failures >= self.failures_to_open:
            self.state = BreakerState.OPEN
            self.opened_ms = now_ms
