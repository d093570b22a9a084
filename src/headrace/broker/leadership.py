"""What this broker leads, as one of several: follows the cluster, opens partitions that it is given, gives up those it loses.

To open one takes: what object storage has of it, where its epoch begins (in the metastore, before the first record of it), and
a ceiling for its offsets. Only then does it take records. Everything before can be repeated, by anybody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from headrace.broker.shared_topics import SharedTopics
from headrace.broker.wal_opening import WalOpening
from headrace.control.cluster import Cluster
from headrace.errors import HeadraceError, NotFound, StaleEpoch, Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.telemetry.logging import get_logger

_RETRY_S: Final = 0.2
_AT_ONCE: Final = 64
"""Partitions opened together: the first ones serve while the others are read."""

log = get_logger(__name__)


class Leadership:
    def __init__(
        self,
        cluster: Cluster,
        topics: SharedTopics,
        *,
        learn: Callable[[Sequence[PartitionLog]], Awaitable[None]],
        adopt: Callable[[Sequence[PartitionLog]], Awaitable[None]],
        wal: WalOpening,
        forget: Callable[[PartitionLog], None],
        on_fault: Callable[[HeadraceError], None],
    ) -> None:
        """`learn` tells partitions how far object storage has them, and then `adopt` what it has of their producers; `forget` undoes it
        for those that are not led after all."""
        self._cluster = cluster
        self._topics = topics
        self._learn = learn
        self._adopt = adopt
        self._wal = wal
        self._forget = forget
        self._on_fault = on_fault
        self._opening: set[tuple[bytes, int]] = set()
        self._touched: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        topics.on_changed = lambda name: self._touch((name,))
        topics.on_resigned.append(forget)

    async def start(self) -> None:
        await self._cluster.load_members()
        self._touch(topic.name for topic in self._cluster.topics)
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._cluster.follow(self._touch))
                group.create_task(self._cluster.follow_members(self._topics.members_changed))
                group.create_task(self._settle_for_ever())
        except* HeadraceError as group_error:
            self._on_fault(first_of(group_error))

    def _touch(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names))
        if self._touched:
            self._changed.set()

    async def _settle_for_ever(self) -> None:
        async with asyncio.TaskGroup() as opening:
            while True:
                await self._changed.wait()
                self._changed.clear()
                names, self._touched = self._touched, {}
                given = [
                    each for name in names for each in self._topics.follow(name) if _place(each) not in self._opening
                ]
                self._opening.update(map(_place, given))
                on_wal = [each for each in given if each.policy.durability is Durability.WAL]
                for kind in (on_wal, [each for each in given if each not in on_wal]):
                    for start in range(0, len(kind), _AT_ONCE):
                        opening.create_task(self._open(kind[start : start + _AT_ONCE]))

    async def _open(self, given: Sequence[PartitionLog]) -> None:
        names = list(dict.fromkeys(each.topic_name for each in given))
        begun = asyncio.get_running_loop().time()
        opened: list[PartitionLog] = []
        try:
            if given[0].policy.durability is Durability.WAL:
                opened += await self._open_on_wal(given)
            else:
                await self._learn(given)
                await _both(self._adopt(given), self._begin_epochs(given))
                opened += [each for each in given if self._topics.take_lead(each)]
        except StaleEpoch:
            raise
        except (Unavailable, NotFound) as error:
            log.warning("partitions not opened yet", count=len(given), reason=str(error))
            await asyncio.sleep(_RETRY_S)
        finally:
            self._opening.difference_update(map(_place, given))
        for partition in given:
            if partition not in opened:
                self._forget(partition)
        if opened:
            took_ms = round((asyncio.get_running_loop().time() - begun) * 1000)
            log.info("partitions opened", count=len(opened), topics=sorted(names)[:10], took_ms=took_ms)
        # What was given to us once more, or given up, while it was being opened.
        self._touch(names if len(opened) < len(given) else ())

    async def _begin_epochs(self, given: Sequence[PartitionLog]) -> None:
        """Where they begin, and room for their first offsets."""
        await self._cluster.open_partitions({(each.topic_name, each.index): each.end_offset for each in given})
        await self._topics.ceilings.cover(given)

    async def _open_on_wal(self, given: Sequence[PartitionLog]) -> list[PartitionLog]:
        """Where object storage has nothing of them, it need not be there."""
        await self._learn(given)
        if uploaded := [each for each in given if each.uploaded_end > each.log_start]:
            await self._adopt(uploaded)
        return await self._wal.open(given)


async def _both(first: Awaitable[None], second: Awaitable[None]) -> None:
    """Beside each other, both to their end: what fails is done again from the beginning, and must not go on behind that."""
    for failure in await asyncio.gather(first, second, return_exceptions=True):
        if failure is not None:
            raise failure


def _place(partition: PartitionLog) -> tuple[bytes, int]:
    return partition.topic_id, partition.index


def first_of(group: BaseExceptionGroup[HeadraceError]) -> HeadraceError:
    """One is enough to say what is broken."""
    found = group.exceptions[0]
    return first_of(found) if isinstance(found, BaseExceptionGroup) else found
