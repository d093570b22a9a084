"""Refused logins by address: each costs a delay that grows, and one address has only a few under way at a time.

So whoever tries passwords gets few of them looked at, and takes the hashing threads from nobody else.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.clock import Clock
from headrace.errors import Overloaded

DELAY_FIRST_S: Final = 0.2
"""As the Kafka door's."""
DELAY_MAX_S: Final = 5.0
FORGOTTEN_MS: Final = 10 * 60 * 1000
UNDER_WAY_PER_ADDRESS_MAX: Final = 4
UNDER_WAY_MAX: Final = 64
ADDRESSES_MAX: Final = 10_000


class Attempts:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By address: how many in a row, and when the last was."""
        self._under_way: dict[str, int] = {}
        self.refused_total = 0

    @contextmanager
    def one(self, address: str) -> Iterator[None]:
        """While a password is looked at, and while its refusal waits; raises `Overloaded` where too many are."""
        mine = self._under_way.get(address, 0)
        if mine >= UNDER_WAY_PER_ADDRESS_MAX or sum(self._under_way.values()) >= UNDER_WAY_MAX:
            raise Overloaded("too many logins at once; try again in a moment")
        self._under_way[address] = mine + 1
        try:
            yield
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]

    def refused(self, address: str) -> float:
        """Counts one; gives the seconds that its answer waits."""
        self.refused_total += 1
        now_ms = self._clock.monotonic_ms()
        count, last_ms = self._refused.pop(address, (0, now_ms))
        count = 1 if now_ms - last_ms > FORGOTTEN_MS else count + 1
        self._refused[address] = (count, now_ms)
        while len(self._refused) > ADDRESSES_MAX:
            self._refused.popitem(last=False)
        return float(min(DELAY_FIRST_S * 2 ** min(count - 1, 10), DELAY_MAX_S))

    def succeeded(self, address: str) -> None:
        self._refused.pop(address, None)
