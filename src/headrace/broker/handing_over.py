"""Before a broker stops: partitions of `wal` topics are made such that anybody can lead them, a few at a time.

A partition takes no more records, object storage gets what it lacks, and then its leader's entry names no ring any more: the controllers
give it to another broker, who opens it from object storage. Until then it is read here. The next few follow when those are led elsewhere, so that
each is closed only for as long as that takes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.broker.shared_topics import SharedTopics
from headrace.control.cluster import Cluster
from headrace.errors import NotFound, NotLeader, Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger

_AT_ONCE: Final = 64
_AGAIN_S: Final = 0.02
_REFUSED_S: Final = 0.5
"""Until the store, or the metastore, is asked again that did not answer."""

log = get_logger(__name__)


class HandingOver:
    def __init__(
        self, cluster: Cluster, topics: SharedTopics, store: LogStore, *, upload: Callable[[], Awaitable[bool]]
    ) -> None:
        """`upload` brings to object storage what waits for it; False where some of it was refused."""
        self._cluster = cluster
        self._topics = topics
        self._store = store
        self._upload = upload
        self._resigned = asyncio.Event()
        topics.on_resigned.append(lambda partition: self._resigned.set())

    async def run(self) -> None:
        """Returns when this broker has no records that others need. Bound it from outside."""
        # Most of it beforehand: while a partition is closed it has only little left to bring.
        await self._bring(self._led())
        while led := self._led():
            few = led[:_AT_ONCE]
            for each in few:
                each.close()
            await self._store.wal.drain()
            await self._bring(few)
            await self._leave(few)
            while any(not each.removed for each in few):
                self._resigned.clear()
                await self._resigned.wait()
            log.info("partitions handed over", count=len(few))

    def _led(self) -> list[PartitionLog]:
        return [
            each for each in self._store.partitions() if each.policy.durability is Durability.WAL and not each.removed
        ]

    async def _bring(self, partitions: list[PartitionLog]) -> None:
        targets = {each: each.end_offset for each in partitions}
        while any(each.uploaded_end < end and not each.removed for each, end in targets.items()):
            is_brought = False
            try:
                is_brought = await self._upload()
            except Unavailable as error:
                log.info("a hand-over waits", reason=str(error))
            await asyncio.sleep(_AGAIN_S if is_brought else _REFUSED_S)

    async def _leave(self, partitions: list[PartitionLog]) -> None:
        while left := [each for each in partitions if not each.removed]:
            try:
                await self._cluster.leave_ring({(each.topic_name, each.index): each.leader_epoch for each in left})
                return
            except (NotLeader, NotFound):
                pass  # One of them is another's already, or gone: whoever follows the cluster hears of it.
            except Unavailable as error:
                log.info("a hand-over waits", reason=str(error))
            await asyncio.sleep(_AGAIN_S)
