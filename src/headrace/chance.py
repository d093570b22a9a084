"""Chance as an argument: nobody else asks the operating system for random bytes.

A node that is given a seeded source (`random.Random` is one) makes the same ids, names and pauses again: a simulated run
can be repeated to the last byte.
"""

import random
from typing import Final, Protocol
from uuid import UUID


class Chance(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def randbytes(self, n: int, /) -> bytes:
        """`n` bytes that nobody can guess, or in a simulation only its seed."""
        ...


SYSTEM_CHANCE: Final[Chance] = random.SystemRandom()


def new_uuid(chance: Chance) -> UUID:
    """A random one, version 4."""
    return UUID(bytes=chance.randbytes(16), version=4)
