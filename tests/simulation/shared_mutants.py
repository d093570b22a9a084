"""Clusters with one rule broken each, as `mutants.py` has them for a node that is alone."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.broker.adopting import Adopting
from headrace.broker.deferred import Deferred
from headrace.broker.transactions.markers import Markers
from headrace.broker.transactions.participation import Participation
from headrace.broker.transactions.service import Transactions
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Compare, exists
from headrace.control.plans import Fence
from headrace.control.takeovers import Known
from headrace.control.wal_plans import Place
from headrace.disk import Disk
from headrace.errors import HeadraceError, NotLeader, Unavailable
from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.foreign import ForeignWal
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.store import LogStore
from headrace.log.wal.writer import WalWriter
from headrace.node import node
from headrace.node.wal_home import WalHome
from headrace.tier import sweeper, takeover
from headrace.tier.commits import Commits
from headrace.tier.plans import Claim
from headrace.tier.takeover import Takeover

Patch = pytest.MonkeyPatch


def claimed_in_any_epoch(patch: Patch) -> None:
    """Who led once claims with what the metastore says of the leader now."""
    claim = Commits.claim

    def careless(self: Commits, topic_id: bytes, partition: int, **named: Any) -> Claim:
        entry = self.topic(topic_id).partitions[partition]
        leader, entry.leader = entry.leader, self.broker_id
        try:
            return claim(self, topic_id, partition, **{**named, "leader_epoch": entry.leader_epoch})
        finally:
            entry.leader = leader

    patch.setattr(Commits, "claim", careless)
    not_fenced(patch)


def not_fenced(patch: Patch) -> None:
    """A broker whose epoch is over may still write."""

    def anybody(self: Fence) -> Compare:
        return exists(keys.CLUSTER)

    patch.setattr(Fence, "compare", anybody)
    patch.setattr(Cluster, "_check_fence", lambda self, found: None)


def producers_not_asked_for(patch: Patch) -> None:
    """Whoever takes over knows no producer."""

    async def nothing(self: Takeover, partitions: Sequence[PartitionLog]) -> None:
        return

    patch.setattr(Takeover, "adopt", nothing)


def deposed_leader_believed(patch: Patch) -> None:
    """What a leader saved counts beyond the end of its epoch."""

    def whole(pictures: Sequence[PartitionCheckpoint], partition: PartitionLog) -> PartitionCheckpoint | None:
        return max(pictures, key=lambda each: each.end_offset, default=None)

    patch.setattr(takeover, "_true_part", whole)


def keeper_does_not_look(patch: Patch) -> None:
    """The keeper goes by its own memory, in which others' segments are not."""

    async def nobody(store: object) -> set[str]:
        return set()

    patch.setattr(sweeper, "referenced_keys", nobody)


def acknowledged_after_the_fence(patch: Patch) -> None:
    """The owner of a WAL does not look for the fence after a flush."""
    init = WalWriter.__init__

    def careless(self: WalWriter, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **{**named, "fence_path": Path("/nowhere")})

    patch.setattr(WalWriter, "__init__", careless)


def not_fenced_before_it_is_read(patch: Patch) -> None:
    """Whoever takes a WAL over sets no fence."""
    patch.setattr(ForeignWal, "fence", lambda self: None)


def wal_taken_over_is_read_again(patch: Patch) -> None:
    """An owner that comes back goes on with its WAL, fenced or not."""

    async def same(cluster: Cluster, name: str, first: Path, *, disk: Disk) -> WalHome:
        return WalHome(first, b"")

    patch.setattr(node, "settle_home", same)
    patch.setattr(LogStore, "_require_no_fence", lambda self: None)


def copied_and_not_told(patch: Patch) -> None:
    """Partitions are led before a checkpoint tells of what was copied."""
    take = Adopting._take

    async def hurried(self: Adopting, known: Known, wal: ForeignWal, partitions: Any) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._store, "checkpoint", self._store.wal.drain, raising=False)
            await take(self, known, wal, partitions)

    patch.setattr(Adopting, "_take", hurried)


def led_before_it_is_durable(patch: Patch) -> None:
    """The metastore names the taker before its WAL has the records."""
    take = Adopting._take

    async def hurried(self: Adopting, known: Known, wal: ForeignWal, partitions: Any) -> None:
        taken = {
            (each.topic_name, each.index): Place(each.leader_epoch, each.end_offset, self._store.ring_id, 0)
            for each in partitions.values()
        }
        await self._cluster.take_over(taken, owner=known.owner, former_ring=known.value.ring_id, guard=known.guard())
        await take(self, known, wal, partitions)

    patch.setattr(Adopting, "_take", hurried)


def markers_dropped_where_nobody_leads(patch: Patch) -> None:
    """A partition whose leader has changed counts as told of the outcome, as it did where there was one broker."""
    write_at_leader = Markers._write_at_leader

    def careless(self: Markers, action: Any, epoch: int, where: Any) -> Deferred[None]:
        done: Deferred[None] = Deferred()

        def settled(written: Deferred[None]) -> None:
            try:
                written.result()
            except (NotLeader, Unavailable):
                done.resolve(None)
            except HeadraceError as error:
                done.reject(error)
            else:
                done.resolve(None)

        try:
            write_at_leader(self, action, epoch, where).then(settled)
        except (NotLeader, Unavailable):
            asyncio.get_running_loop().call_soon(done.resolve, None)
        return done

    patch.setattr(Markers, "_write_at_leader", careless)


def deposed_coordinator_believed(patch: Patch) -> None:
    """A marker counts whichever life of the coordinator sends it, and one that lost its partition goes on sending."""
    patch.setattr(Producers, "check_coordinator", lambda self, producer_id, coordinator_epoch: None)
    patch.setattr(Transactions, "unload", lambda self, index: self._log.note_lost(index))


def nobody_is_asked(patch: Patch) -> None:
    """Leaders take transactional batches without a word of the coordinator."""
    patch.setattr(Participation, "check_append", lambda self, partition, header: None)
    patch.setattr(Participation, "to_ask_for", lambda self, *arguments, **named: frozenset())


SHARED_MUTANTS: Final[dict[str, Callable[[Patch], None]]] = {
    "claimed-in-any-epoch": claimed_in_any_epoch,
    "not-fenced": not_fenced,
    "producers-not-asked-for": producers_not_asked_for,
    "deposed-leader-believed": deposed_leader_believed,
    "keeper-does-not-look": keeper_does_not_look,
    "acknowledged-after-the-fence": acknowledged_after_the_fence,
    "not-fenced-before-it-is-read": not_fenced_before_it_is_read,
    "wal-taken-over-is-read-again": wal_taken_over_is_read_again,
    "copied-and-not-told": copied_and_not_told,
    "led-before-it-is-durable": led_before_it_is_durable,
    "markers-dropped-where-nobody-leads": markers_dropped_where_nobody_leads,
    "deposed-coordinator-believed": deposed_coordinator_believed,
    "nobody-is-asked": nobody_is_asked,
}
