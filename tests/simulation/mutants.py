"""Nodes with one rule broken each: a simulation that does not notice is too mild.

Only this file knows where the rules live; the node has no switch to break them. `docs/development/simulation.md` says which
seed catches which mutant.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.simulation.cluster import SimulatedFlusher

from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.outcome import GroupError
from headrace.broker.transactions.markers import Markers
from headrace.control.cluster import Cluster
from headrace.control.metastore import Compare
from headrace.disk import Buffer, Disk
from headrace.log import checkpoint, partition_recovery
from headrace.log import recovery as log_recovery
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.store import LogStore
from headrace.log.transactions import TransactionIndex
from headrace.log.wal import recovery
from headrace.log.wal.writer import WalWriter
from headrace.tier import sweeper
from headrace.tier.ledger import Ledger
from headrace.tier.sweeper import Sweeper

Patch = pytest.MonkeyPatch


def ack_before_flush(patch: Patch) -> None:
    """A group counts as durable once it is handed over."""

    def early(self: SimulatedFlusher, lsn: int, image: memoryview) -> None:
        own = memoryview(bytes(image))
        self._loop.start_job(self._thread, lambda: self._file.write(lsn, own))
        self._loop.call_soon(self._done, None)

    patch.setattr(SimulatedFlusher, "write", early)


def fence_not_looked_for(patch: Patch) -> None:
    """The owner of a WAL does not look whether it was taken over, neither after a flush nor at a start."""
    init = WalWriter.__init__

    def blind(self: WalWriter, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **{**named, "fence_path": Path("/nowhere")})

    patch.setattr(WalWriter, "__init__", blind)
    patch.setattr(LogStore, "_require_no_fence", lambda self: None)


def unflushed_is_readable(patch: Patch) -> None:
    """The high watermark counts what is not on disk yet. Acknowledgements are right."""
    take = PartitionLog._take

    def early(self: PartitionLog, *arguments: Any, **named: Any) -> Any:
        appended = take(self, *arguments, **named)
        self._advance(appended.end_offset)
        return appended

    patch.setattr(PartitionLog, "_take", early)
    patch.setattr(PartitionLog, "wait", lambda self, end_offset, waiter: self._store.wal.wait(waiter))
    _without_kernels(patch)


def object_acked_by_the_wal(patch: Patch) -> None:
    """A topic that demands object storage is acknowledged as soon as this disk has it."""
    patch.setattr(PartitionLog, "wait", lambda self, end_offset, waiter: self._store.wal.wait(waiter))


def producers_forgotten(patch: Patch) -> None:
    """What a partition knows of its producers does not survive a start."""
    replay = partition_recovery.replay

    def forgetful(*arguments: Any, **named: Any) -> None:
        replay(*arguments, **{**named, "is_in_checkpoint": True})

    patch.setattr(log_recovery, "replay", forgetful)
    patch.setattr(Producers, "restore", lambda self, snapshots: None)


def transactions_forgotten(patch: Patch) -> None:
    """Nor does what it knows of aborted transactions, as far as a checkpoint has it."""
    patch.setattr(TransactionIndex, "restore", classmethod(lambda cls, snapshot: cls()))


def markers_dropped(patch: Patch) -> None:
    """One partition of a transaction does not hear of its outcome, and counts as told."""
    write_one = Markers._write_one

    def forgetful(
        self: Markers, action: Any, epoch: int, where: Any, finished: Callable[[Any], None], is_over: Callable[[], bool]
    ) -> None:
        if where.partition == 1 and not where.topic.startswith("__"):
            asyncio.get_running_loop().call_soon(finished, where)
        else:
            write_one(self, action, epoch, where, finished, is_over)

    patch.setattr(Markers, "_write_one", forgetful)


def commit_not_fenced(patch: Patch) -> None:
    """Whoever was a member once may commit."""
    patch.setattr(ClassicGroup, "check_commit", lambda self, **_: GroupError.NONE)


def ceiling_not_persisted(patch: Patch) -> None:
    """Offsets are given out above what the metastore knows."""
    raise_ceilings = Cluster.raise_ceilings

    async def forgetful(self: Cluster, targets: Any) -> None:
        await raise_ceilings(self, dict.fromkeys(targets, 1))

    patch.setattr(Cluster, "raise_ceilings", forgetful)


def torn_groups_believed(patch: Patch) -> None:
    """Recovery takes every batch that a table names, whether it reads back or not."""
    patch.setattr(recovery, "is_whole", lambda row: True)


def offset_given_twice(patch: Patch) -> None:
    """After a start the last record of each partition is forgotten, and its offset given to another."""
    recovered = partition_recovery.recovered

    def short(partition: PartitionLog) -> None:
        if partition.end_offset > partition.log_start:
            partition.end_offset -= 1
        recovered(partition)

    patch.setattr(log_recovery, "recovered", short)


def checkpoint_of_the_future(patch: Patch) -> None:
    """A checkpoint is written before what it shows is durable."""

    async def hasty(self: LogStore) -> None:
        drain = self.wal.drain
        self.wal.drain = _at_once  # type: ignore[method-assign]
        try:
            await original(self)
        finally:
            self.wal.drain = drain  # type: ignore[method-assign]

    original = LogStore.checkpoint
    patch.setattr(LogStore, "checkpoint", hasty)


def checkpoint_not_flushed(patch: Patch) -> None:
    """A new checkpoint takes the place of the old one before it is on disk."""

    def careless(disk: Disk, path: Path, pieces: Sequence[Buffer]) -> None:
        draft = path.with_name(f"{path.name}.new")
        disk.create(draft).write_whole(pieces)
        disk.rename(draft, path)
        disk.sync_directory(path.parent)

    patch.setattr(checkpoint, "replace_file", careless)


def ring_trimmed_too_far(patch: Patch) -> None:
    """The ring is reused although object storage does not have what was in it."""

    async def all_of_it(self: LogStore, besides: object = None) -> int:
        return self.wal.durable_lsn

    patch.setattr(LogStore, "oldest_needed_lsn", all_of_it)


def sweeper_does_not_look(patch: Patch) -> None:
    """Objects are given up by their age alone, whether segments are in them or not."""

    async def nothing(store: object) -> set[str]:
        return set()

    def no_compare(self: Sweeper, entries: object) -> list[Compare]:
        return [self._cluster.fence.compare()]

    patch.setattr(sweeper, "referenced_keys", nothing)
    patch.setattr(Sweeper, "_unless_changed", no_compare)
    patch.setattr("headrace.tier.segments.SegmentTable.is_referenced", lambda self, object_id: False)


def manifests_not_written(patch: Patch) -> None:
    """Commits do not reach the bucket: whoever reads it without a broker misses records."""

    async def nothing(self: Ledger) -> None:
        return None

    patch.setattr(Ledger, "write_pending", nothing)
    patch.setattr(Ledger, "run", lambda self: asyncio.sleep(1e9))
    patch.setattr(Ledger, "is_behind", False)


def _without_kernels(patch: Patch) -> None:
    """Every request takes the way in Python, where the rule is broken."""

    def never_plain(self: PartitionLog) -> None:
        self.plain_size_max = 0

    patch.setattr(PartitionLog, "_judge_plain", never_plain)


async def _at_once() -> None:
    """Waits for nothing."""


MUTANTS: Final[dict[str, Callable[[Patch], None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        ack_before_flush,
        fence_not_looked_for,
        unflushed_is_readable,
        object_acked_by_the_wal,
        producers_forgotten,
        transactions_forgotten,
        markers_dropped,
        commit_not_fenced,
        ceiling_not_persisted,
        torn_groups_believed,
        offset_given_twice,
        checkpoint_of_the_future,
        checkpoint_not_flushed,
        ring_trimmed_too_far,
        sweeper_does_not_look,
        manifests_not_written,
    )
}
