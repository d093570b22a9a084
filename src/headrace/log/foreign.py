"""The WAL of a broker that is gone, read by another one: fenced, then read to its end, as its owner would at a start.

Nothing in it is changed but by the fence. Its owner may still be there, paused in the middle of something: what it had under way may
end while this reads, a last group, a spill, a trim. It acknowledges nothing of that. A superblock that has changed meanwhile says that the
space of what was read may have been used again, so everything is read once more; its owner stops at its next flush.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headrace.clock import Clock
from headrace.disk import Disk
from headrace.errors import Corrupted, StorageFailed
from headrace.log import homes
from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.exposure import exposed_from
from headrace.log.partition import PartitionLog
from headrace.log.partition_recovery import forget_lost, resume_above_ceiling
from headrace.log.pictures import picture_of, restore_picture
from headrace.log.recovery import Recovery
from headrace.log.shortfall import Witness
from headrace.log.spill.files import PartitionKey, SpillFiles
from headrace.log.wal.file import storage_errors, superblock_of
from headrace.log.wal.format import BLOCK_SIZE, DATA_START, Superblock
from headrace.log.wal.paths import WAL_FILE_NAME
from headrace.records.batch import Buffer

_ALL: Final = 1 << 62
_READS_MAX: Final = 8
"""Of a ring whose owner changes it all the time, which one that is fenced cannot."""


class Found(NamedTuple):
    """A batch of the owner's WAL that object storage has not, by its address."""

    lsn: int
    size: int
    place: PartitionKey


class ForeignRing:
    """Its bytes, as `RingFile` shows them, and no way to change them."""

    def __init__(self, path: Path, *, disk: Disk, sealed_lsn: int | None) -> None:
        self.path = path
        with storage_errors("read the WAL"):
            self._file = disk.open_to_read(path)
            found = superblock_of(self._file)
            if found is None:
                raise Corrupted(f"{path} has no readable superblock")
            self.on_disk = found
            # An owner's ring has no sealed end of its own: whoever takes it over keeps that in the metastore.
            self.superblock: Superblock = found._replace(sealed_lsn=sealed_lsn or found.sealed_lsn)
            self.data_size = found.data_size
            self.zeroed_end = min(max(self._file.size() & ~(BLOCK_SIZE - 1), DATA_START), found.capacity)

    def is_unchanged(self) -> bool:
        with storage_errors("read the WAL"):
            return superblock_of(self._file) == self.on_disk

    def view(self) -> memoryview:
        return self._file.view(self.zeroed_end if self.zeroed_end > DATA_START else 0)

    def place(self, lsn: int) -> int:
        return DATA_START + lsn % self.data_size

    def read(self, lsn: int, size: int) -> bytes:
        with storage_errors("read the WAL"):
            return self._file.read(self.place(lsn), size)

    def sync(self) -> None:
        """What its owner wrote and did not live to flush: it must not be read here, and then be lost with the power."""
        with storage_errors("flush the WAL"):
            self._file.sync()

    def close(self) -> None:
        self._file.close()


class ForeignWal:
    """`fence` it, `read` it (both block, and are for a thread), take each `batch` that was `found`, `close` it."""

    def __init__(self, home: Path, *, disk: Disk, clock: Clock) -> None:
        self._home = home
        self._disk = disk
        self._clock = clock
        self._ring: ForeignRing | None = None
        self._spill: SpillFiles | None = None
        self._view = memoryview(b"")
        self._before: dict[PartitionKey, PartitionCheckpoint] = {}
        self.end_lsn = 0

    def fence(self) -> None:
        homes.fence(self._home, self._disk)

    def read(
        self,
        partitions: Mapping[PartitionKey, PartitionLog],
        *,
        since: Mapping[PartitionKey, int],
        sealed_lsn: int | None,
        durable_lsn: int,
    ) -> Recovery:
        """Tell these partitions what the WAL has of them, beside what they know already, up to `sealed_lsn`, or to its end where nobody has sealed it yet.

        `durable_lsn` is how far the metastore knows it to be on disk. Raises where it cannot be read at all.
        """
        self._before = {place: picture_of(each, 0) for place, each in partitions.items()}
        for _ in range(_READS_MAX):
            recovery = self._read(partitions, since, sealed_lsn)
            assert self._ring is not None
            if self._ring.is_unchanged():
                break
        else:
            raise StorageFailed(f"the WAL in {self._home} is fenced, and is still being written")
        recovery.witness(Witness("the metastore", max(durable_lsn, sealed_lsn or 0)))
        if recovery.shortfall is not None:
            for partition in partitions.values():
                forget_lost(partition)
                resume_above_ceiling(partition)
        self.end_lsn = recovery.head_lsn
        self._view = self._ring.view()
        return recovery

    def _read(
        self,
        partitions: Mapping[PartitionKey, PartitionLog],
        since: Mapping[PartitionKey, int],
        sealed_lsn: int | None,
    ) -> Recovery:
        self.close()
        ring = self._ring = ForeignRing(self._home / WAL_FILE_NAME, disk=self._disk, sealed_lsn=sealed_lsn)
        spill = self._spill = SpillFiles(
            self._home, ring.superblock.ring_id, bytes_max=0, disk=self._disk, is_foreign=True
        )
        for place, partition in partitions.items():
            _put_back(partition, self._before[place])
        recovery = Recovery(
            ring, spill, directory=self._home, partitions=partitions, clock=self._clock, disk=self._disk, since=since
        )
        recovery.run()
        return recovery

    def found(self, partitions: Mapping[PartitionKey, PartitionLog]) -> list[Found]:
        """What `read` has told them of and object storage has not, in the order of the WAL."""
        return sorted(
            Found(stored.lsn, stored.size, place)
            for place, partition in partitions.items()
            for stored in partition.tail.stored(exposed_from(partition), _ALL, partition.end_offset)
        )

    def batch(self, found: Found) -> Buffer:
        """Its bytes, as they were checked by `read`; as long as this is open."""
        assert self._ring is not None
        assert self._spill is not None
        if found.lsn >= self._ring.superblock.trim_lsn:
            start = self._ring.place(found.lsn)
            return self._view[start : start + found.size]
        spilled = self._spill.find(found.lsn, found.size)
        assert spilled is not None, "the spill has told of it"
        (batch,) = self._spill.read([spilled])
        return batch

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None
            self._view = memoryview(b"")


def _put_back(partition: PartitionLog, before: PartitionCheckpoint) -> None:
    """What an earlier read has told is forgotten: the ring may have been changed under it."""
    partition.tail.clear()
    partition.producers = partition.transactions = None
    partition.end_offset = partition.durable_end = partition.high_watermark = exposed_from(partition)
    restore_picture(partition, before)
