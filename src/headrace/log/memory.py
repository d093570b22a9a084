"""Memory of all tails together: chunks are handed out under one budget, and full ones are evicted, oldest first.

What only memory has stays. What object storage has goes first, once half of the budget is in use.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.aligned import LendablePages
from headrace.clock import Clock
from headrace.log.arena import ArenaPool, Chunk, make_chunks

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

_WARM_SHARE: Final = 2
"""Half of the budget keeps what object storage has too, for consumers that are a little behind. The other half is for what is
not uploaded yet."""
_EVICTION_TRIES: Final = 16


class TailMemory:
    """Where the tails of all partitions take their chunks from, and give them back to."""

    def __init__(self, budget_bytes: int, clock: Clock) -> None:
        self._arenas = ArenaPool(budget_bytes, lambda: clock.monotonic_ms() / 1000)
        self._making: asyncio.Future[list[LendablePages]] | None = None
        self._sealed: deque[PartitionLog] = deque()
        """The partition of each full chunk, in the order in which they were filled."""

    def take_chunk(self, size_needed: int, previous: Chunk | None) -> Chunk:
        used = self._arenas.used_bytes
        if used > self._arenas.budget_bytes:
            self._evict(is_uploaded_only=False)
        elif used > self._arenas.budget_bytes // _WARM_SHARE:
            self._evict(is_uploaded_only=True)
        chunk = self._arenas.take(size_needed, previous)
        if self._arenas.is_short and self._making is None:
            self._making = asyncio.get_running_loop().run_in_executor(None, make_chunks)
            self._making.add_done_callback(self._made)
        return chunk

    def _made(self, making: "asyncio.Future[list[LendablePages]]") -> None:
        self._making = None
        if not making.cancelled() and making.exception() is None:
            self._arenas.add(making.result())

    def chunk_sealed(self, partition: "PartitionLog") -> None:
        """`partition` has filled one more chunk: it may be evicted once its turn comes."""
        self._sealed.append(partition)

    def give_back(self, chunk: Chunk) -> None:
        self._arenas.give_back(chunk)

    def _evict(self, *, is_uploaded_only: bool) -> None:
        """Oldest full chunks first, two for the one that is about to be taken; what only memory has stays."""
        dropped = 0
        for _ in range(min(len(self._sealed), _EVICTION_TRIES)):
            partition = self._sealed.popleft()
            if partition.drop_chunk(is_uploaded_only=is_uploaded_only):
                dropped += 1
                if dropped == 2:
                    return
            elif not partition.removed:
                self._sealed.append(partition)

    @property
    def used_bytes(self) -> int:
        """Of the chunks in tails."""
        return self._arenas.used_bytes

    @property
    def pinned_bytes(self) -> int:
        """What slow readers pin: dropped from tails, still referenced by unsent responses."""
        return self._arenas.lingering_bytes

    @property
    def sealed_count(self) -> int:
        """Full chunks that may be evicted."""
        return len(self._sealed)
