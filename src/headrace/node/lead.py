"""Taking over this broker's partitions at a start: no offset that an earlier life can have given out is given out again.

The metastore remembers which ring this broker's WAL was. Another one, or one that ends before its time, means that records
are lost whose offsets clients may have seen, so every partition goes on above its ceiling. The order makes any number of
failed starts harmless: what was lost is known until the very end, `settle`, when the offsets it cost are spanned by empty
batches in the new ring, producers and transactions have been asked of the bucket, and all of it is on disk.
"""

import asyncio
from typing import Final

import structlog

from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Put
from headrace.errors import Conflict, Unavailable
from headrace.log.partition_recovery import close_gap, resume_above_ceiling
from headrace.log.shortfall import Witness
from headrace.log.store import LogStore
from headrace.telemetry.problems import Problems

SHORT_RING: Final = b"short"
"""In place of a ring's id: this ring has lost its end, and that is not yet accounted for."""
_RING_ID_SIZE: Final = 16

log = structlog.get_logger(__name__)


def former_name(cluster: Cluster) -> str | None:
    """Who leads the partitions of this metastore; None when there are none yet. `Conflict` when several do."""
    leaders = sorted({partition.leader for topic in cluster.topics for partition in topic.partitions} - {""})
    if len(leaders) > 1:
        raise Conflict(
            f"the partitions of this metastore are led by {', '.join(leaders)}; one node can only be one of them"
        )
    return leaders[0] if leaders else None


def check_name(name: str, cluster: Cluster) -> None:
    """`Conflict` when this metastore is another broker's. Before that broker's partitions are touched."""
    former = former_name(cluster)
    if former is not None and former != name:
        raise Conflict(
            f"the partitions of this metastore are led by {former}, and this broker is {name}: "
            f"start it with broker.id={former}, or with the data directory of {name}"
        )


class Lead:
    """The steps of a start between recovery and the first door, each of them to be repeated after a crash."""

    def __init__(
        self,
        name: str,
        *,
        cluster: Cluster,
        store: LogStore,
        topics: Topics,
        clock: Clock,
        problems: Problems,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: of one of several brokers, each partition's entry says which ring has its records. Another one is no loss to
        those that are read from this one."""
        self._name = name
        self._ring_path = keys.broker_ring(name)
        self._cluster = cluster
        self._store = store
        self._topics = topics
        self._clock = clock
        self._problems = problems
        self._is_shared = is_shared
        self._noting: asyncio.Future[None] | None = None
        self._is_settled = False
        self.is_ring_lost = False
        """This WAL is not all that the broker had: only the bucket knows of what was uploaded before."""

    async def take(self) -> None:
        """After recovery, before the log starts: epochs that fence every earlier life, offsets above all of theirs."""
        known = await self._cluster.store.get(self._ring_path)
        self.is_ring_lost = await self._is_ring_lost(known.value if known is not None else None)
        if self.is_ring_lost:
            await self._store.forget_lost()
            for partition in self._store.partitions():
                resume_above_ceiling(partition)
        starts = {(each.topic_name, each.index): each.end_offset for each in self._store.partitions()}
        await self._cluster.raise_leader_epochs(starts)
        self._topics.refresh_epochs()
        if not self._is_shared:
            await self._topics.keep_readable(self._name)

    async def _is_ring_lost(self, known: bytes | None) -> bool:
        """Whether records are missing that this broker had; said aloud, and on record until `settle`."""
        if self._is_shared and known is not None and known[:_RING_ID_SIZE] not in (SHORT_RING, self._store.ring_id):
            known = None
        if known is not None and known[:_RING_ID_SIZE] != self._store.ring_id:
            self._problems.raise_problem(
                "wal replaced", "the WAL of this broker was replaced: what was not uploaded is lost"
            )
            log.error("the WAL is not the one this broker had; offsets resume above their ceilings")
            return True
        if known is not None:
            self._store.recovery.witness(Witness("the metastore", int.from_bytes(known[_RING_ID_SIZE:])))
        if self._store.recovery.shortfall is None:
            return False
        reason = self._store.recovery.shortfall.reason
        self._problems.raise_problem(
            "wal short", f"the WAL of this broker has lost its end, and what was not uploaded of it: {reason}"
        )
        log.error("the WAL has lost its end; offsets resume above their ceilings", reason=reason)
        await self._cluster.store.txn((), (Put(self._ring_path, SHORT_RING),))
        return True

    async def close_gaps(self) -> None:
        """Span lost offsets with empty batches, on disk when this returns. The log has started."""
        now_ms = self._clock.now_ms()
        for partition in self._store.partitions():
            if count := close_gap(partition, now_ms=now_ms):
                log.warning(
                    "lost offsets are passed over", topic=partition.topic_name, partition=partition.index, count=count
                )
        await self._store.wal.drain()

    async def settle(self) -> None:
        """From here on this ring is the one that counts. Everything that its loss has cost is on disk."""
        await self._note_ring(self._store.wal.durable_lsn)
        self._is_settled = True
        self._store.checkpointed = self._note_checkpoint
        await self._topics.ceilings.begin()

    async def leave(self) -> None:
        """After the log has stopped in order: the next start is to find all of it."""
        await self.rest()
        if self._is_settled and self._store.wal.failure is None:
            await self._note_ring(self._store.wal.durable_lsn)

    async def rest(self) -> None:
        """Note nothing more about the ring."""
        self._store.checkpointed = lambda: None
        if self._noting is not None:
            await asyncio.gather(self._noting, return_exceptions=True)

    def _note_checkpoint(self) -> None:
        """Now and then, while the log is trimmed."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.ensure_future(self._note_if_possible())

    async def _note_if_possible(self) -> None:
        try:
            await self._note_ring(self._store.checkpointed_lsn)
        except Unavailable as error:
            # How far it was noted before stays true, too.
            log.info("the ring's end was not noted", reason=str(error))

    async def _note_ring(self, durable_lsn: int) -> None:
        value = self._store.ring_id + durable_lsn.to_bytes(8)
        guards = (self._cluster.fence.compare(),) if self._is_shared else ()
        await self._cluster.store.txn(guards, (Put(self._ring_path, value),))
