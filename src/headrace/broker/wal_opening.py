"""Opens partitions of `wal` topics in this broker's own WAL, as one of several brokers.

The order makes a crash at any point harmless. What object storage tells is in the partition; where records were lost, an empty batch over
their offsets is in the WAL; a checkpoint tells of both. Only then does the leader's entry in the metastore name this ring: from that
moment on a restart reads the partition from here, and finds it all. Until then it finds another ring there, or none, and begins anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headrace.broker.shared_topics import SharedTopics
from headrace.clock import Clock
from headrace.control.cluster import Cluster
from headrace.control.wal_plans import Place
from headrace.errors import Elsewhere, Unavailable
from headrace.log.partition import PartitionLog
from headrace.log.partition_recovery import close_gap, resume_above_ceiling
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger

_RETRY_S: Final = 0.2

log = get_logger(__name__)


class WalOpening:
    def __init__(self, cluster: Cluster, topics: SharedTopics, store: LogStore, *, clock: Clock) -> None:
        self._cluster = cluster
        self._topics = topics
        self._store = store
        self._clock = clock

    async def open(self, partitions: Sequence[PartitionLog]) -> list[PartitionLog]:
        """Those that take records from here on. They know what object storage has of them, and of their producers.

        Raises `NotLeader` or `NotFound` when one of them is another's by now.
        """
        ring_start = self._store.wal.next_lsn
        for each in partitions:
            self._store.hold(each)
        try:
            for each in partitions:
                if self._topics.is_tail_lost(each):
                    self._pass_over_lost(each)
            await self._store.checkpoint()
            places = {
                (each.topic_name, each.index): Place(
                    each.leader_epoch, each.end_offset, self._store.ring_id, ring_start
                )
                for each in partitions
            }
            await insist(lambda: self._cluster.open_in_ring(places))
            await insist(lambda: self._topics.ceilings.cover(partitions))
            return [each for each in partitions if self._topics.take_lead(each)]
        finally:
            for each in partitions:
                self._store.let_go(each)

    def _pass_over_lost(self, partition: PartitionLog) -> None:
        """Nobody has what was in its WAL: offsets go on above all that can have been given out."""
        resume_above_ceiling(partition)
        count = close_gap(partition, now_ms=self._clock.now_ms())
        log.error(
            "the WAL that had the newest records of a partition is lost: its offsets are passed over",
            topic=partition.topic_name,
            partition=partition.index,
            first=partition.end_offset - count,
            end=partition.end_offset,
        )


async def insist(work: Callable[[], Awaitable[None]]) -> None:
    """Until it is done: a metastore that is away may have done it, and only the next answer tells."""
    while True:
        try:
            return await work()
        except Elsewhere:
            raise
        except Unavailable as error:
            log.warning("a partition waits for the metastore to be opened", reason=str(error))
            await asyncio.sleep(_RETRY_S)
