"""Keeps every partition's offset ceiling a little ahead of what it assigns.

A ceiling is where offsets go on after a lost disk, so it is near: what a lost disk skips is no more than some seconds of the
observed rate, or `CEILING_STEP`. It is in the bucket before it is in the metastore, and in the metastore before an offset
below it is given out, so that both know a bound, whichever is lost (ADR 0015). All of it happens ahead of need: a partition
asks when half of its room is used, and those that have asked are looked after by the clock from then on.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from headrace.control.cluster import Cluster
from headrace.errors import HeadraceError, NotFound
from headrace.log.partition import PartitionLog
from headrace.log.store import CEILING_STEP, LogStore

AHEAD_S: Final = 10.0
"""Seconds of its present rate that a ceiling is ahead of a partition."""
_LOOK_S: Final = 1.0
_STEP_MAX: Final = 1 << 26
"""Even of a rate that was measured over a moment."""

log = structlog.get_logger(__name__)

PartitionCeilings = Mapping[PartitionLog, int]


class CeilingRecord(Protocol):
    """Who keeps ceilings where they outlive the metastore."""

    def note(self, ceilings: PartitionCeilings) -> None:
        """Keep them, soon."""

    async def record(self, ceilings: PartitionCeilings) -> None:
        """Keep them. Waits for it, but only as long as producers can wait."""


@dataclass(slots=True)
class _Pace:
    """What a partition had reached when it was last looked at."""

    end_offset: int
    at_s: float
    step: int = CEILING_STEP
    quiet_looks: int = 0


class Ceilings:
    def __init__(self, cluster: Cluster, store: LogStore) -> None:
        self._cluster = cluster
        self._store = store
        self._wanted: dict[PartitionLog, None] = {}
        self._busy: dict[PartitionLog, _Pace] = {}
        """Those that have asked lately."""
        self.task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.bucket: CeilingRecord | None = None
        """Set by the node, where there is a bucket."""
        self.is_held = False
        """At a start: ceilings stay as an earlier life left them until what was lost with it is accounted for."""
        self.ahead_s = AHEAD_S
        store.raise_ceiling = self.want

    def want(self, partition: PartitionLog) -> None:
        """Half of the room is used, or there is too little for a batch."""
        self._wanted[partition] = None
        if self.task is None and not self.is_held:
            self.task = asyncio.ensure_future(self._raise_wanted())

    async def open(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Of partitions that are about to exist. The bucket hears of them later: one that it does not know is given far
        more room by a restore than it can have used by then.
        """
        await self._cluster.raise_ceilings(dict.fromkeys(partitions, CEILING_STEP))

    async def begin(self) -> None:
        """After recovery: room for every partition, now and whenever it runs short. The bucket hears of all of them."""
        self.is_held = False
        self._wanted.clear()
        await self.cover(list(self._store.partitions()))

    async def cover(self, everybody: Sequence[PartitionLog]) -> None:
        """Room for each of these, known to metastore and bucket."""
        low = [each for each in everybody if each.end_offset + self._store.ceiling_margin > each.ceiling]
        targets = {each: each.end_offset + CEILING_STEP for each in low}
        if everybody and self.bucket is not None:
            await self.bucket.record({each: targets.get(each, each.ceiling) for each in everybody})
        await self._persist(targets)

    def announce(self, partitions: Iterable[PartitionLog]) -> None:
        """New partitions: the bucket hears of them."""
        if self.bucket is not None:
            self.bucket.note({each: each.ceiling for each in partitions})

    async def stop(self) -> None:
        self.is_held = True
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _raise_wanted(self) -> None:
        try:
            while self._wanted:
                wanted = [each for each in self._wanted if not each.removed]
                self._wanted.clear()
                await self._raise({each: each.end_offset + self._step(each) for each in wanted})
        except NotFound:
            log.info("a topic was deleted while its offset ceiling was raised")
        except HeadraceError as error:
            # They ask again with their next batch.
            log.warning("offset ceilings were not raised", reason=str(error))
        finally:
            self.task = None
        self._look_later()

    async def _raise(self, targets: PartitionCeilings) -> None:
        if self.bucket is not None and targets:
            await self.bucket.record(targets)
        await self._persist(targets)

    async def _persist(self, targets: PartitionCeilings) -> None:
        if targets:
            await self._cluster.raise_ceilings({(each.topic_name, each.index): to for each, to in targets.items()})
        for partition, ceiling in targets.items():
            partition.ceiling = max(partition.ceiling, ceiling)

    def _step(self, partition: PartitionLog) -> int:
        """Some seconds of the rate since it last asked; more each time if it has not come on since: its batch is larger."""
        now_s = asyncio.get_running_loop().time()
        pace = self._busy.get(partition)
        if pace is None:
            self._busy[partition] = _Pace(partition.end_offset, now_s)
            return CEILING_STEP
        if partition.end_offset == pace.end_offset:
            pace.step = min(pace.step * 4, _STEP_MAX)
            return pace.step
        rate = (partition.end_offset - pace.end_offset) / max(now_s - pace.at_s, 0.001)
        pace.step = min(max(int(rate * self.ahead_s), CEILING_STEP), _STEP_MAX)
        pace.end_offset, pace.at_s, pace.quiet_looks = partition.end_offset, now_s, 0
        return pace.step

    def _look_later(self) -> None:
        if self._busy and self._timer is None and not self.is_held:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Ask for those that would have used up half of their seconds before they ask themselves."""
        self._timer = None
        for partition, pace in list(self._busy.items()):
            if partition.removed or pace.quiet_looks > self.ahead_s / _LOOK_S:
                del self._busy[partition]
            elif partition.ceiling - partition.end_offset < pace.step // 2:
                self.want(partition)
            else:
                pace.quiet_looks += 1
        self._look_later()
