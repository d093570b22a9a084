"""Reading the ring back: every group that is provably whole, and a verdict on what is not.

Where the chain of groups breaks there are two cases. If no later group of this ring exists, the break is a torn tail: a
write that was never acknowledged; it is cut off. If a later group exists, its header vouches that everything before it
was durable, so the break is rot: the range is quarantined and reported, and reading goes on behind it.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from crc32c import crc32c

from headrace.log.wal.format import (
    BLOCK_SIZE,
    DATA_START,
    ENTRY_SIZE,
    GROUP_HEADER_SIZE,
    Entry,
    GroupFlags,
    GroupHeader,
    Superblock,
    decode_group_header,
    decode_table,
    ring_seed,
)
from headrace.records.batch import MAGIC, has_valid_crc, read_header

_MAGIC_WORD: Final = int.from_bytes(b"HRWG", "little")


class Ring(Protocol):
    """What is read back: this broker's own, or that of another."""

    @property
    def path(self) -> Path: ...

    @property
    def superblock(self) -> Superblock: ...

    @property
    def data_size(self) -> int: ...

    @property
    def zeroed_end(self) -> int: ...

    def view(self) -> memoryview: ...

    def place(self, lsn: int) -> int: ...

    def sync(self) -> None: ...


class RecoveredEntry(NamedTuple):
    entry: Entry
    lsn: int
    batch: memoryview


class Quarantine(NamedTuple):
    """A range of the WAL that was durable once and does not read back."""

    start_lsn: int
    end_lsn: int
    entries: list[Entry]
    """What was lost, where the table is still readable; empty when even that is gone."""
    reason: str


class RingReader:
    """One pass over the ring from the trim point. After `entries` is exhausted the outcome is in the attributes."""

    def __init__(self, file: Ring) -> None:
        self._file = file
        self._seed = ring_seed(file.superblock.ring_id)
        self._view = file.view()
        self.next_lsn = file.superblock.trim_lsn
        """Where writing goes on."""
        self.previous_lsn = file.superblock.trim_lsn
        self.was_clean = False
        self.group_starts = array("q")
        self.quarantined: list[Quarantine] = []

    def entries(self) -> Iterator[RecoveredEntry]:
        """Every good entry in order. Views point into the file's map: copy what is kept, then `close`."""
        limit = self._limit()
        lsn = self.next_lsn
        while lsn < limit:
            header = self._header_at(lsn)
            if header is None:
                resumed = self._resume_behind(lsn, limit, vouched_lsn=self.previous_lsn)
                if resumed is None:
                    break
                if resumed.previous_lsn != self.previous_lsn:
                    self.quarantined.append(Quarantine(lsn, resumed.lsn, [], "unreadable groups"))
                header = resumed
            table = self._table_of(header)
            rows = [] if table is None else self._rows(header, table)
            good = [row for row in rows if is_whole(row)]
            if table is None or len(good) < len(rows):
                if self._resume_behind(header.end_lsn, limit, vouched_lsn=header.lsn, at_start=True) is None:
                    break  # Torn: it was the last group and nobody was told that it is there.
                self._quarantine(header, table, [row for row in rows if not is_whole(row)])
            yield from good
            self.was_clean = bool(header.flags & GroupFlags.END)
            self.group_starts.append(header.lsn)
            self.previous_lsn = header.lsn
            lsn = self.next_lsn = header.end_lsn

    def close(self) -> None:
        """Let go of the file's map; it is unmapped when the last view of it is gone."""
        self._view = memoryview(b"")

    def _limit(self) -> int:
        limit = self._file.superblock.trim_lsn + self._file.data_size
        sealed = self._file.superblock.sealed_lsn
        return min(limit, sealed) if sealed else limit

    def _header_at(self, lsn: int) -> GroupHeader | None:
        place = self._file.place(lsn)
        header = decode_group_header(self._view[place : place + GROUP_HEADER_SIZE], self._seed)
        if header is None or header.lsn != lsn:
            return None
        return header

    def _resume_behind(self, lsn: int, limit: int, *, vouched_lsn: int, at_start: bool = False) -> GroupHeader | None:
        """The first group of this ring at or behind `lsn` (only behind it unless `at_start`).

        It vouches for the group at `vouched_lsn`: one that names an older predecessor was torn in an earlier life, at
        the start of the ring, and the log has gone another way since.
        """
        if at_start and lsn < limit and (header := self._header_at(lsn)) is not None:
            return header if header.previous_lsn >= vouched_lsn else None
        for start, end in self._spans(lsn, limit):
            blocks = np.frombuffer(self._view[start:end], dtype="<u4")[:: BLOCK_SIZE // 4]
            for block in np.flatnonzero(blocks == _MAGIC_WORD).tolist():
                place = start + block * BLOCK_SIZE
                header = decode_group_header(self._view[place : place + GROUP_HEADER_SIZE], self._seed)
                if header is None or not lsn < header.lsn < limit or self._file.place(header.lsn) != place:
                    continue
                if header.previous_lsn >= vouched_lsn:
                    return header
        return None

    def _spans(self, lsn: int, limit: int) -> list[tuple[int, int]]:
        """File ranges that hold LSNs from `lsn` to `limit`, in LSN order; unzeroed file ends early."""
        capacity = self._file.superblock.capacity
        place, size = self._file.place(lsn), limit - lsn
        first_end = min(place + size, capacity)
        spans = [(place, first_end), (DATA_START, DATA_START + size - (first_end - place))]
        present = self._file.zeroed_end
        return [(start, min(end, present)) for start, end in spans if start < min(end, present)]

    def _table_of(self, header: GroupHeader) -> bytes | None:
        start = self._file.place(header.lsn) + GROUP_HEADER_SIZE + header.payload_size
        table = bytes(self._view[start : start + header.table_size])
        if len(table) != header.table_size or len(table) % ENTRY_SIZE or crc32c(table) != header.table_crc:
            return None
        return table

    def _rows(self, header: GroupHeader, table: bytes) -> list[RecoveredEntry]:
        lsn = header.lsn + GROUP_HEADER_SIZE
        place = self._file.place(lsn)  # A group never crosses the ring's end.
        view = self._view
        rows = []
        for entry in decode_table(table):
            rows.append(RecoveredEntry(entry, lsn, view[place : place + entry.size]))
            lsn += entry.size
            place += entry.size
        return rows

    def _quarantine(self, header: GroupHeader, table: bytes | None, bad: list[RecoveredEntry]) -> None:
        reason = "entry table damaged" if table is None else f"{len(bad)} damaged batches"
        self.quarantined.append(Quarantine(header.lsn, header.end_lsn, [row.entry for row in bad], reason))


def is_whole(row: RecoveredEntry) -> bool:
    """The batch is what the table says it is, to the last bit."""
    if len(row.batch) != row.entry.size or not has_valid_crc(row.batch):
        return False
    header = read_header(row.batch)
    # The CRC does not cover what stands in front of it.
    return (header.magic, header.base_offset, header.leader_epoch, header.size) == (
        MAGIC,
        row.entry.base_offset,
        row.entry.leader_epoch,
        row.entry.size,
    )
