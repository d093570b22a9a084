"""Time as an argument: nobody else asks the operating system what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; for deadlines and ages."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def boot_ms() -> int:
    """Milliseconds that never go back and go on while the machine sleeps; for promises that others count on."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
