"""Copies the oldest part of the ring, as far as it is not uploaded, into the spill: one file at a time.

Only durable batches are copied, and only what a partition has nowhere else. The ring may go on behind them once the file
is on disk. A file that could not be written changes nothing: everything is still in the ring.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from headrace.errors import Fault
from headrace.log.exposure import first_unuploaded_lsn, unuploaded_between
from headrace.log.partition import PartitionLog
from headrace.log.spill.files import PartitionKey, SpillFile
from headrace.log.spill.format import SpilledBatch
from headrace.log.store import LogStore, check_stored
from headrace.log.tail import StoredBatch
from headrace.log.wal.format import Entry
from headrace.records.batch import Buffer, read_header

_FILE_BYTES: Final = 32 * 1024 * 1024
"""Held in memory while it is copied; small enough for the first one to be freed soon."""
_EXTENT_BYTES: Final = 16 * 1024 * 1024
"""Looked at in one go: bounds the list of batches when they are tiny."""
_SURVEY_SLICE: Final = 512
_READ_BYTES: Final = 1024 * 1024
_GAP_BYTES: Final = 16 * 1024
"""Batches closer than this are read together: cheaper than another system call."""
_DISK_RESERVE: Final = 1024 * 1024 * 1024
"""Left free on the disk: the metastore and the checkpoint need room, and a paused producer is better than a dead node."""

log = structlog.get_logger(__name__)


class _Wanted(NamedTuple):
    partition: PartitionLog
    stored: StoredBatch


class Spiller:
    """One task may use it at a time."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._spill = logs.spill
        self._is_full = False
        self.spilled_bytes_total = 0

    @property
    def used_bytes(self) -> int:
        return self._spill.used_bytes

    async def spill(self, target_lsn: int) -> bool:
        """Copy on towards `target_lsn`, one file's worth. False when there is nothing to copy, or no place for it."""
        start_lsn = max(self._spill.end_lsn, self._logs.wal.trim_lsn)
        end_lsn = min(target_lsn, self._logs.wal.durable_lsn)
        if not self._spill.bytes_max or start_lsn >= end_lsn:
            return False
        wanted, end_lsn = await self._survey(start_lsn, end_lsn)
        if not wanted:
            self._spill.pass_over(end_lsn)
            return True
        size = sum(each.stored.size for each in wanted)
        if not self._has_place(size):
            return False
        try:
            file = await self._logs.write_beside(self._copy, wanted, start_lsn, end_lsn)
        except Fault as error:
            log.error("could not spill; what is not uploaded stays in the WAL", reason=str(error))
            return False
        self._spill.add(file)
        self.spilled_bytes_total += size
        log.info("spilled", bytes=size, batches=len(wanted), end_lsn=end_lsn, used=self._spill.used_bytes)
        return True

    async def release(self) -> None:
        """Delete the files whose every batch is uploaded, or deleted."""
        paths = self._spill.release(self._first_needed)
        if paths:
            self._is_full = False
            await self._logs.write_beside(self._spill.delete, paths)
            log.info("spill released", files=len(paths), used=self._spill.used_bytes)

    def _first_needed(self, key: PartitionKey) -> int | None:
        partition = self._logs.find(*key)
        return first_unuploaded_lsn(partition) if partition is not None else None

    async def _survey(self, start_lsn: int, end_lsn: int) -> tuple[list[_Wanted], int]:
        """What is not uploaded from `start_lsn` on, in the order of the ring, and where that stops."""
        found: list[_Wanted] = []
        size = 0
        while start_lsn < end_lsn and size < _FILE_BYTES:
            extent_end = min(start_lsn + _EXTENT_BYTES, end_lsn)
            extent = await self._survey_extent(start_lsn, extent_end)
            extent.sort(key=lambda each: each.stored.lsn)
            size += sum(each.stored.size for each in extent)
            found += extent
            start_lsn = extent_end
        return found, start_lsn

    async def _survey_extent(self, start_lsn: int, end_lsn: int) -> list[_Wanted]:
        found: list[_Wanted] = []
        for index, partition in enumerate(list(self._logs.partitions())):
            if index % _SURVEY_SLICE == _SURVEY_SLICE - 1:
                await asyncio.sleep(0)
            found += [_Wanted(partition, stored) for stored in unuploaded_between(partition, start_lsn, end_lsn)]
        return found

    def _has_place(self, size: int) -> bool:
        free = self._logs.disk.free_bytes(self._logs.directory)
        has_place = self._spill.used_bytes + size <= self._spill.bytes_max and free >= size + _DISK_RESERVE
        if not has_place and not self._is_full:
            log.error("the spill is full", used=self._spill.used_bytes, limit=self._spill.bytes_max, free_on_disk=free)
        self._is_full = not has_place
        return has_place

    def _copy(self, wanted: Sequence[_Wanted], start_lsn: int, end_lsn: int) -> SpillFile:
        """Blocking."""
        batches: list[Buffer] = []
        rows: list[SpilledBatch] = []
        for stretch in _stretches(wanted, self._logs.file.data_size):
            first, last = stretch[0].stored, stretch[-1].stored
            view = memoryview(self._logs.file.read(first.lsn, last.lsn + last.size - first.lsn))
            for partition, stored in stretch:
                # A copy: a view would keep the whole stretch, of which this may be a small part.
                batch = bytes(view[stored.lsn - first.lsn :][: stored.size])
                check_stored(stored, batch)
                epoch = read_header(batch).leader_epoch
                entry = Entry(partition.topic_id, partition.index, stored.size, stored.base_offset, epoch)
                rows.append(SpilledBatch(entry, stored.lsn))
                batches.append(batch)
        return self._spill.write(rows, batches, start_lsn=start_lsn, end_lsn=end_lsn)


def _stretches(wanted: Sequence[_Wanted], lap_size: int) -> Iterator[list[_Wanted]]:
    """Neighbours in the ring, to be read together. What lies in different laps is far apart on disk."""
    stretch: list[_Wanted] = []
    for each in wanted:
        if stretch and not _is_neighbour(stretch[0].stored, stretch[-1].stored, each.stored, lap_size):
            yield stretch
            stretch = []
        stretch.append(each)
    if stretch:
        yield stretch


def _is_neighbour(first: StoredBatch, last: StoredBatch, following: StoredBatch, lap_size: int) -> bool:
    is_near = following.lsn - (last.lsn + last.size) <= _GAP_BYTES
    is_small = following.lsn + following.size - first.lsn <= _READ_BYTES
    return is_near and is_small and first.lsn // lap_size == following.lsn // lap_size
