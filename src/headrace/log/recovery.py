"""What a start reads back: the checkpoint, the spill and the ring, into the partitions; and what of it is missing.

Nothing is appended here. Whoever starts the log decides what to do about a `shortfall`.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import structlog

from headrace.clock import Clock
from headrace.disk import Disk
from headrace.errors import Corrupted
from headrace.log.checkpoint import Checkpoint, read_checkpoint, set_aside_checkpoint
from headrace.log.partition import PartitionLog
from headrace.log.partition_recovery import forget_lost_batches, recovered, replay, resume_above_ceiling
from headrace.log.pictures import restore_picture
from headrace.log.shortfall import Witness, shortfall
from headrace.log.spill.files import PartitionKey, SpillFiles
from headrace.log.wal.recovery import Quarantine, Ring, RingReader
from headrace.records.batch import read_header

log = structlog.get_logger(__name__)


class Recovery:
    """One run over the files of a log; holds what it has found."""

    def __init__(
        self,
        file: Ring,
        spill: SpillFiles,
        *,
        directory: Path,
        partitions: Mapping[PartitionKey, PartitionLog],
        clock: Clock,
        disk: Disk,
        since: Mapping[PartitionKey, int] | None = None,
    ) -> None:
        """`since` has the address from which on the ring has a partition; what it has of it below is of another time."""
        self._file = file
        self._spill = spill
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._disk = disk
        self.since: Mapping[PartitionKey, int] = since or {}
        self._picture_lsns: dict[PartitionLog, int] = {}
        """Up to where the checkpoint knows each partition, as an address in the ring."""
        self._picture_ends: dict[PartitionLog, int] = {}
        """The same as an offset."""
        self.checkpointed_lsn = 0
        self.is_complete = True
        """Whether the partitions know all that checkpoint and ring have told; else only the bucket knows the rest."""
        self.quarantined: list[Quarantine] = []
        self.shortfall: Quarantine | None = None
        """The end of the ring that is missing, as far as anybody knows."""
        self.head: RingReader

    @property
    def head_lsn(self) -> int:
        """Where the ring was found to end."""
        return self.head.next_lsn

    def run(self) -> None:
        """Blocking; once all partitions are there."""
        started_ms = self._clock.monotonic_ms()
        checkpoint = self._sound_checkpoint()
        has_checkpoint = checkpoint is not None and checkpoint.ring_id == self._file.superblock.ring_id
        if checkpoint is not None and has_checkpoint:
            self._restore(checkpoint)
        # A killed process may have left a group in the page cache: it must not be read, and then lost with the power.
        self._file.sync()
        reader = RingReader(self._file)
        count = 0
        last_lsns: dict[PartitionLog, int] = {}
        ring_ends: dict[PartitionLog, int] = {}
        # A copy of what the ring itself still has is of no interest yet.
        spilled = (row for row in self._spill.recover() if row.lsn < self._file.superblock.trim_lsn)
        since = self.since
        for entry, lsn, batch in chain(spilled, reader.entries()):
            place = (entry.topic_id, entry.partition)
            partition = self._partitions.get(place)
            # Else its topic was deleted, or is led elsewhere; the space goes with the next trim.
            if partition is not None and (not since or lsn >= since.get(place, 0)):
                header = read_header(batch)
                replay(partition, header, batch, lsn, is_in_checkpoint=lsn < self._picture_lsns.get(partition, 0))
                last_lsns[partition] = lsn
                ring_ends[partition] = header.end_offset
                count += 1
        reader.close()
        self.head = reader
        self._find_shortfall(ring_ends)
        self._spill.cut(reader.next_lsn)
        self.quarantined = [*self._spill.quarantined, *reader.quarantined, *filter(None, [self.shortfall])]
        _report_damage(self.quarantined)
        for damage in reader.quarantined:
            self._pass_over_lost_offsets(damage, last_lsns)
        for partition in self._partitions.values():
            if self.quarantined:
                forget_lost_batches(partition)
            recovered(partition)
        has_missed_uploads = any(map(self._has_missed_uploads, reader.quarantined))
        self.is_complete = (has_checkpoint or not reader.next_lsn) and not has_missed_uploads
        self._picture_lsns.clear()
        self._picture_ends.clear()
        if not reader.next_lsn:
            log.info("log begun", path=str(self._file.path))
            return
        log.info(
            "log recovered",
            batches=count,
            groups=len(reader.group_starts),
            clean=reader.was_clean,
            seconds=(self._clock.monotonic_ms() - started_ms) / 1000,
        )

    def _sound_checkpoint(self) -> Checkpoint | None:
        try:
            return read_checkpoint(self._directory, disk=self._disk)
        except Corrupted as error:
            if self._file.superblock.trim_lsn:
                raise
            log.error("the checkpoint is damaged; the WAL still has all that was in it", reason=str(error))
            set_aside_checkpoint(self._directory, disk=self._disk)
            return None

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.checkpointed_lsn = checkpoint.lsn
        for saved in checkpoint.partitions:
            place = (saved.topic_id, saved.index)
            partition = self._partitions.get(place)
            lsn = max(saved.lsn, checkpoint.lsn)
            if partition is None or lsn < self.since.get(place, 0):
                continue
            self._picture_lsns[partition] = lsn
            self._picture_ends[partition] = saved.end_offset
            restore_picture(partition, saved)

    def _find_shortfall(self, ring_ends: Mapping[PartitionLog, int]) -> None:
        """`ring_ends` is how far the ring has each partition that it has anything of."""
        superblock = self._file.superblock
        pictures = max(self._picture_lsns.values(), default=0)
        witnesses = [
            Witness("the checkpoint", max(self.checkpointed_lsn, pictures)),
            Witness("the spill", self._spill.end_lsn),
            # Space is released up to the start of a group that is there.
            Witness("the superblock", superblock.trim_lsn + bool(superblock.trim_lsn)),
        ]
        self.shortfall = shortfall(self.head_lsn, witnesses, sealed_lsn=superblock.sealed_lsn)
        if self.shortfall is not None or self.head.quarantined:
            return
        # A ring loses batches at its front only: one that has any of a partition has the last of it.
        for partition, end_offset in ring_ends.items():
            if end_offset < partition.uploaded_end:
                place = f"{partition.topic_name}-{partition.index}"
                reason = f"the ring has {place} up to {end_offset}, object storage up to {partition.uploaded_end}"
                self.shortfall = Quarantine(self.head_lsn, self.head_lsn, [], reason)

    def _pass_over_lost_offsets(self, damage: Quarantine, last_lsns: Mapping[PartitionLog, int]) -> None:
        """Offsets were given out in a range that does not read back; they are not given out again.

        Where a later batch, or the checkpoint, tells how far a partition had come, offsets go on from there. Others go
        on above their ceiling.
        """
        if damage.end_lsn <= self.checkpointed_lsn:
            return
        for (topic_id, index), partition in self._partitions.items():
            is_hit = not damage.entries or any(
                (entry.topic_id, entry.partition) == (topic_id, index) for entry in damage.entries
            )
            if is_hit and last_lsns.get(partition, -1) < damage.start_lsn:
                resume_above_ceiling(partition)

    def _has_missed_uploads(self, damage: Quarantine) -> bool:
        """Whether batches are lost here that neither the checkpoint knows nor the replay has told of, while object storage has
        them: their producers and transactions are to be asked of the bucket."""
        return any(
            self._picture_ends.get(partition, 0) < partition.uploaded_end
            and damage.end_lsn > self._picture_lsns.get(partition, 0)
            and (not damage.entries or _first_lost(damage, key) < partition.uploaded_end)
            for key, partition in self._partitions.items()
        )

    def witness(self, witness: Witness) -> None:
        """Somebody else knows how far the ring went."""
        found = shortfall(self.head_lsn, [witness], sealed_lsn=self._file.superblock.sealed_lsn)
        if self.shortfall is None and found is not None:
            self.shortfall = found
            self.quarantined.append(found)
            _report_damage([found])


def _first_lost(damage: Quarantine, key: PartitionKey) -> float:
    """Offset of the first batch of a partition in a damaged range whose table is readable; infinite when it has none."""
    return min(
        (each.base_offset for each in damage.entries if (each.topic_id, each.partition) == key), default=math.inf
    )


def _report_damage(quarantined: Iterable[Quarantine]) -> None:
    for damage in quarantined:
        log.error(
            "wal range quarantined: durable once, unreadable now",
            start_lsn=damage.start_lsn,
            end_lsn=damage.end_lsn,
            batches=len(damage.entries),
            reason=damage.reason,
        )
