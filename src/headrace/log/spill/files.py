"""The spill's files: written whole, read back by the address a batch had in the ring, removed when nobody needs them.

`write` and `read` block and may run in a thread; everything else belongs to the event loop. A file counts from `add` on,
when it is on disk under its own name. A read opens its file anew: one that was removed meanwhile is simply not there.
"""

import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from headrace.disk import OS_DISK, Disk, replace_file
from headrace.errors import Corrupted
from headrace.log.spill.format import HEADER_SIZE, SpilledBatch, decode_header, decode_rows, encode_head
from headrace.log.wal.file import storage_errors
from headrace.log.wal.recovery import Quarantine, RecoveredEntry, is_whole
from headrace.records.batch import Buffer

PREFIX: Final = "spill-"
_DIGITS: Final = 20

PartitionKey = tuple[bytes, int]


class SpillPlace(NamedTuple):
    """Where a batch is now."""

    path: Path
    position: int
    size: int


class SpillFile:
    """One file, and what is in it."""

    def __init__(
        self, path: Path, *, start_lsn: int, end_lsn: int, position: int, rows: Sequence[SpilledBatch]
    ) -> None:
        """`position` is where the first batch begins."""
        self.path = path
        self.start_lsn = start_lsn
        self.end_lsn = end_lsn
        self.lsns = array("q", (lsn for _, lsn in rows))
        self.positions = array("q")
        self.waiting: dict[PartitionKey, int] = {}
        """Partitions that may still need the file, with the address of their last batch in it."""
        for entry, lsn in rows:
            self.positions.append(position)
            position += entry.size
            self.waiting[(entry.topic_id, entry.partition)] = lsn
        self.size = position


class SpillFiles:
    """All of a broker's spill, in the order of the ring. Empty unless the object store has let us down."""

    def __init__(
        self, directory: Path, ring_id: bytes, *, bytes_max: int, disk: Disk = OS_DISK, is_foreign: bool = False
    ) -> None:
        """Of another broker's spill (`is_foreign`) nothing is changed: others may come to read it, too."""
        self._is_foreign = is_foreign
        self._directory = directory
        self._disk = disk
        self._ring_id = ring_id
        self.bytes_max = bytes_max
        self._files: list[SpillFile] = []
        self.end_lsn = 0
        """What is not uploaded of the ring below this is in the spill."""
        self.used_bytes = 0
        self.quarantined: list[Quarantine] = []

    # -- writing -------------------------------------------------------------------------------------------------

    def write(
        self, rows: Sequence[SpilledBatch], batches: Sequence[Buffer], *, start_lsn: int, end_lsn: int
    ) -> SpillFile:
        """Put the batches on disk; they may be relied on when this returns. Blocking."""
        path = self._directory / f"{PREFIX}{start_lsn:0{_DIGITS}d}"
        head = encode_head(self._ring_id, start_lsn=start_lsn, end_lsn=end_lsn, rows=rows)
        with storage_errors("write the spill"):
            replace_file(self._disk, path, [head, *batches])
        return SpillFile(path, start_lsn=start_lsn, end_lsn=end_lsn, position=len(head), rows=rows)

    def add(self, file: SpillFile) -> None:
        self._files.append(file)
        self.used_bytes += file.size
        self.pass_over(file.end_lsn)

    def pass_over(self, end_lsn: int) -> None:
        """Below `end_lsn` there is nothing more that only the ring has."""
        self.end_lsn = max(self.end_lsn, end_lsn)

    # -- reading -------------------------------------------------------------------------------------------------

    def find(self, lsn: int, size: int) -> SpillPlace | None:
        number = bisect_right(self._files, lsn, key=_start_of) - 1
        if number < 0:
            return None
        file = self._files[number]
        row = bisect_left(file.lsns, lsn)
        if row == len(file.lsns) or file.lsns[row] != lsn:
            return None
        return SpillPlace(file.path, file.positions[row], size)

    def read(self, places: Sequence[SpillPlace]) -> list[Buffer]:
        """The batches at `places`, unchecked, as far as their files are still there. Blocking."""
        found: list[Buffer] = []
        with contextlib.suppress(FileNotFoundError):
            for path, group in groupby(places, key=_path_of):
                file = self._disk.open_to_read(path)
                try:
                    with storage_errors("read the spill"):
                        found += [file.read(place.position, place.size) for place in group]
                finally:
                    file.close()
        return found

    # -- letting go ----------------------------------------------------------------------------------------------

    def delete(self, paths: Iterable[Path]) -> None:
        """What `release` gave. Blocking."""
        for path in paths:
            self._disk.remove(path)

    def release(self, first_needed: Callable[[PartitionKey], int | None]) -> list[Path]:
        """Forget the files that nobody needs; they are the caller's to delete.

        `first_needed` gives the address of the oldest batch that a partition has nowhere else.
        """
        kept: list[SpillFile] = []
        gone: list[SpillFile] = []
        for file in self._files:
            (kept if _is_needed(file, first_needed) else gone).append(file)
        self._files = kept
        self.used_bytes -= sum(file.size for file in gone)
        return [file.path for file in gone]

    def __len__(self) -> int:
        return len(self._files)

    # -- recovery ------------------------------------------------------------------------------------------------

    def recover(self) -> Iterator[RecoveredEntry]:
        """Every good batch in the order of the ring, before the ring itself is read. Blocking.

        A file that does not read back is set aside and reported; half-written ones go.
        """
        names = [name for name in self._disk.names(self._directory) if name.startswith(PREFIX)]
        if not self._is_foreign:
            self.delete(self._directory / name for name in names if name.endswith(".new"))
        for path in (self._directory / name for name in names if _is_spill_file(name)):
            try:
                yield from self._recover_file(path)
            except Corrupted as error:
                start = int(path.name.removeprefix(PREFIX))
                self.quarantined.append(Quarantine(start, start, [], f"{path.name}: {error}"))
                if not self._is_foreign:
                    self._disk.rename(path, path.with_suffix(".damaged"))

    def cut(self, next_lsn: int) -> None:
        """The ring goes on at `next_lsn`: addresses from there on are given out again, and mean something else.

        Files with nothing else are set aside: the ring had these batches once, and somebody may want them.
        """
        self.end_lsn = min(self.end_lsn, next_lsn)
        while self._files and self._files[-1].start_lsn >= next_lsn:
            file = self._files.pop()
            self.used_bytes -= file.size
            if not self._is_foreign:
                self._disk.rename(file.path, file.path.with_suffix(".lost"))
        for file in self._files:
            del file.lsns[bisect_left(file.lsns, next_lsn) :]

    def _recover_file(self, path: Path) -> Iterator[RecoveredEntry]:
        opened = self._disk.open_to_read(path)
        view = opened.view(opened.size())
        opened.close()
        if not view:
            raise Corrupted("the spill file is empty")
        header = decode_header(view)
        if header.ring_id != self._ring_id:
            raise Corrupted("the spill file belongs to another WAL")
        position = HEADER_SIZE + header.table_size
        rows = decode_rows(header, view[HEADER_SIZE:position])
        file = SpillFile(path, start_lsn=header.start_lsn, end_lsn=header.end_lsn, position=position, rows=rows)
        self.add(file)
        bad = []
        for (entry, lsn), place in zip(rows, file.positions, strict=True):
            recovered = RecoveredEntry(entry, lsn, view[place : place + entry.size])
            if is_whole(recovered):
                yield recovered
            else:
                bad.append(entry)
        if bad:
            self.quarantined.append(
                Quarantine(header.start_lsn, header.end_lsn, bad, f"{path.name}: {len(bad)} damaged batches")
            )


def _is_spill_file(name: str) -> bool:
    number = name.removeprefix(PREFIX)
    return len(number) == _DIGITS and number.isdigit()


def _is_needed(file: SpillFile, first_needed: Callable[[PartitionKey], int | None]) -> bool:
    # One partition that needs it is enough; those that do not are not asked again.
    while file.waiting:
        partition, last_lsn = next(iter(file.waiting.items()))
        first = first_needed(partition)
        if first is not None and first <= last_lsn:
            return True
        del file.waiting[partition]
    return False


def _start_of(file: SpillFile) -> int:
    return file.start_lsn


def _path_of(place: SpillPlace) -> Path:
    return place.path
