"""Taking over this broker's partitions at a start: no offset that an earlier life can have given out is given out again.

The metastore remembers which ring this broker's WAL was. Another one, or one that ends before its time, means that records
are lost whose offsets clients may have seen, so every partition goes on above its ceiling. The order makes any number of
failed starts harmless: what was lost is known until the very end, `settle`, when the offsets it cost are spanned by empty
batches in the new ring, producers and transactions have been asked of the bucket, and all of it is on disk.
"""

import structlog

from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Put
from headrace.errors import Conflict
from headrace.log.store import LogStore
from headrace.telemetry.problems import Problems

log = structlog.get_logger(__name__)


def former_name(cluster: Cluster) -> str | None:
    """Who leads the partitions of this metastore; None when there are none yet. `Conflict` when several do."""
    leaders = sorted({partition.leader for topic in cluster.catalogue for partition in topic.partitions} - {""})
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
        self, name: str, *, cluster: Cluster, store: LogStore, topics: Topics, clock: Clock, problems: Problems
    ) -> None:
        self._name = name
        self._ring_path = keys.broker_ring(name)
        self._cluster = cluster
        self._store = store
        self._topics = topics
        self._clock = clock
        self._problems = problems
        self.is_ring_lost = False
        """This WAL is not all that the broker had: only the bucket knows of what was uploaded before."""

    async def take(self) -> None:
        """After recovery, before the log starts: epochs that fence every earlier life, offsets above all of theirs."""
        known = await self._cluster.store.get(self._ring_path)
        self.is_ring_lost = known is not None and known.value != self._store.ring_id
        if self.is_ring_lost:
            self._problems.raise_problem(
                "wal replaced", "the WAL of this broker was replaced: what was not uploaded is lost"
            )
            log.error("the WAL is not the one this broker had; offsets resume above their ceilings")
            for partition in self._store.partitions():
                partition.resume_above_ceiling()
        starts = {(each.topic_name, each.index): each.stored_end for each in self._store.partitions()}
        await self._cluster.raise_leader_epochs(starts)
        self._topics.refresh_epochs()
        await self._topics.keep_readable(self._name)

    async def close_gaps(self) -> None:
        """Span lost offsets with empty batches, on disk when this returns. The log has started."""
        now_ms = self._clock.now_ms()
        for partition in self._store.partitions():
            if count := partition.close_gap(now_ms=now_ms):
                log.warning(
                    "lost offsets are passed over", topic=partition.topic_name, partition=partition.index, count=count
                )
        await self._store.wal.drain()

    async def settle(self) -> None:
        """From here on this ring is the one that counts. Everything that its loss has cost is on disk."""
        await self._cluster.store.txn((), (Put(self._ring_path, self._store.ring_id),))
        await self._topics.ceilings.begin()
