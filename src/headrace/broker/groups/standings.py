"""Where every group stands: how far it is behind, and which topics it reads. One walk over all committed offsets for whoever asks.

A walk over a hundred thousand offsets takes a tenth of a second, in slices. So what it found is kept for as long as makes the walks a
fiftieth of one core at most: a few milliseconds where there is little to walk, five seconds where there is much.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.broker.offset_records import CommittedOffset
from headrace.broker.offsets import Offsets, Place
from headrace.broker.slices import Turns
from headrace.broker.topics import Topic, Topics
from headrace.clock import Clock

_KEPT_PER_MS: Final = 20
"""Offsets whose walk, at a microsecond each, pays for a millisecond of keeping."""
KEPT_MS_MAX: Final = 10_000


class Standing(msgspec.Struct, frozen=True):
    lag: int
    """Records between what is committed and the end, over all partitions that there are and that this broker leads."""
    topics: frozenset[str]


NOWHERE: Final = Standing(0, frozenset())
"""Of a group that has committed nothing."""


class Standings:
    def __init__(self, topics: Topics, offsets: Offsets, clock: Clock) -> None:
        self._topics = topics
        self._offsets = offsets
        self._clock = clock
        self._known: Mapping[str, Standing] = {}
        self._until_ms = -1
        self._walking = asyncio.Lock()

    async def all(self, turns: Turns) -> Mapping[str, Standing]:
        """Of every group that has committed something."""
        async with self._walking:
            if self._clock.monotonic_ms() < self._until_ms:
                return self._known
            self._known, count = await self._walk(turns)
            self._until_ms = self._clock.monotonic_ms() + min(count // _KEPT_PER_MS, KEPT_MS_MAX)
            return self._known

    async def _walk(self, turns: Turns) -> tuple[dict[str, Standing], int]:
        found: dict[str, Standing] = {}
        known: dict[str, Topic | None] = {}
        count = 0
        async for group in turns.over(self._offsets.groups()):
            lag = 0
            names: set[str] = set()
            async for chunk in turns.chunks(self._offsets.all_of(group).items()):
                count += len(chunk)
                lag += self._lag(chunk, known)
                names.update([topic for (topic, _), _ in chunk])
            found[group] = Standing(lag, frozenset(names))
        return found, count

    def _lag(self, chunk: list[tuple[Place, CommittedOffset]], known: dict[str, Topic | None]) -> int:
        total = 0
        for (name, index), committed in chunk:
            if name not in known:
                known[name] = self._topics.by_name.get(name)
            topic = known[name]
            if topic is not None and 0 <= index < len(topic.partitions):
                partition = topic.partitions[index]
                behind = 0 if partition.removed else partition.high_watermark - committed.offset
                if behind > 0:
                    total += behind
        return total
