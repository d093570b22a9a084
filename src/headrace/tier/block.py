"""One block: a few consecutive runs of one segment, verified, in memory or in a file, and where their batches are.

A run that is damaged still gives the batches in front of the damage, and never hides its neighbours.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.errors import Corrupted
from headrace.file_range import FileRange, OpenFile
from headrace.records.batch import LENGTH_OVERHEAD, Buffer
from headrace.tier.format.object import Run

BLOCK_BYTES: Final = 4 * 1024 * 1024
_PLACE: Final = struct.Struct(">qi11xi")
"""Of a batch's header only what says where it is: base offset, length, last offset delta."""
_FILE_BLOCK_BYTES: Final = 1024
"""Memory of a block that lies in a file, beside the places of its batches: about."""


class BlockRef(msgspec.Struct, frozen=True, gc=False):
    """Names a block: the runs of one segment that are fetched together."""

    key: str
    runs: tuple[Run, ...]

    @property
    def position(self) -> int:
        return self.runs[0].position

    @property
    def length(self) -> int:
        return self.runs[-1].position + self.runs[-1].length - self.runs[0].position

    @property
    def base_offset(self) -> int:
        return self.runs[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.runs[-1].end_offset


def blocks_of(key: str, runs: Sequence[Run]) -> list[BlockRef]:
    """Cut a segment's runs into blocks of at least `BLOCK_BYTES`; a short rest joins the last one."""
    blocks: list[list[Run]] = []
    size = BLOCK_BYTES
    for run in runs:
        if size >= BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(run)
        size += run.length
    if len(blocks) > 1 and size < BLOCK_BYTES // 2:
        rest = blocks.pop()
        blocks[-1] += rest
    return [BlockRef(key, tuple(block)) for block in blocks]


class Slice(NamedTuple):
    """Whole batches back to back, and the offset behind the last of them."""

    data: memoryview | FileRange
    end_offset: int


class Block:
    """A block that has been verified, in memory or in a file, and where its batches are, as far as somebody had to know."""

    __slots__ = ("_data", "_file", "_rows", "damage", "is_unread", "ref")

    def __init__(
        self,
        ref: BlockRef,
        data: Buffer | None,
        *,
        file: OpenFile | None = None,
        damage: Mapping[int, "Damage"] | None = None,
    ) -> None:
        """Bytes in memory as `data`, or a file that has them at their positions, whose `note_rows` follow."""
        self.ref = ref
        self.damage = damage or {}
        """By the index of the run."""
        self.is_unread = True
        """Fetched ahead, and nobody has come for it yet."""
        self._data = None if data is None else memoryview(data)
        self._file = file
        self._rows: list[_Rows | None] = [None] * len(ref.runs)

    @property
    def data(self) -> memoryview:
        """Its bytes; those in a file are read."""
        if self._data is None:
            return memoryview(self._range(0, self.ref.length, self.ref.end_offset).read())
        return self._data

    @property
    def memory_bytes(self) -> int:
        if self._data is not None:
            return len(self._data)
        return _FILE_BLOCK_BYTES + sum(16 * len(rows.ends) for rows in self._rows if rows is not None)

    def note_rows(self, number: int, run_data: memoryview) -> None:
        """The bytes of a run are at hand: find its batches now, so that nobody has to read them for that."""
        self._rows[number] = _Rows(run_data, 0, len(run_data), self.ref.runs[number].position - self.ref.position)

    def _range(self, start: int, stop: int, end_offset: int) -> FileRange:
        assert self._file is not None
        return FileRange(self._file, self.ref.position + start, stop - start, end_offset)

    def _slice(self, start: int, stop: int, end_offset: int) -> Slice:
        if self._data is None:
            return Slice(self._range(start, stop, end_offset), end_offset)
        return Slice(self._data[start:stop], end_offset)

    def read(self, offset: int, end_offset: int, max_bytes: int) -> Slice | None:
        """Whole batches from the one that holds `offset`, below `end_offset`; at least one if there is any.

        Stops in front of damage, and raises `DamagedRun` for a read that begins there. Only runs that a read begins or ends in are walked batch by batch: small batches make that costly.
        """
        runs = self.ref.runs
        holder = bisect_right(runs, offset, key=_run_end)
        if holder == len(runs) or runs[holder].base_offset >= end_offset:
            return None
        if holder in self.damage and offset >= self.damage[holder].front_end:
            raise DamagedRun(self.ref.key, self.damage[holder])
        rows = self._rows_of(holder)
        start = rows.positions[bisect_right(rows.ends, offset)]
        found: tuple[int, int] | None = None
        for number in range(holder, len(runs)):
            run = runs[number]
            run_stop = run.position - self.ref.position + run.length
            if run.end_offset <= end_offset and run_stop - start <= max_bytes and number not in self.damage:
                found = run_stop, run.end_offset
                continue
            found = self._rows_of(number).fitting(start, end_offset, max_bytes, at_least_one=found is None) or found
            break
        return None if found is None else self._slice(start, *found)

    def batch_starts(self) -> list[int]:
        """Byte positions of all batches in the block."""
        for damage in self.damage.values():
            raise DamagedRun(self.ref.key, damage)
        return [position for number in range(len(self._rows)) for position in self._rows_of(number).positions]

    def _rows_of(self, number: int) -> "_Rows":
        rows = self._rows[number]
        if rows is None:
            run = self.ref.runs[number]
            assert self._data is not None, "a block in a file knows its rows"
            length = self.damage[number].front_bytes if number in self.damage else run.length
            rows = self._rows[number] = _Rows(self._data, run.position - self.ref.position, length)
        return rows


class Damage(msgspec.Struct, frozen=True, gc=False):
    """A run that is not what was written, twice in a row."""

    front_bytes: int
    """Of the batches in front of the damage."""
    front_end: int
    """Offset where the unreadable part begins."""
    end_offset: int
    reason: str
    found_at: float
    """By the event loop's clock."""


class DamagedRun(Corrupted):
    """A read begins in the unreadable part of a run."""

    def __init__(self, key: str, damage: Damage) -> None:
        super().__init__(f"{key}: {damage.reason}")
        self.damage = damage


class _Rows:
    """The batches of one run: byte positions and end offsets."""

    __slots__ = ("_stop", "ends", "positions")

    def __init__(self, data: memoryview, position: int, length: int, moved: int = 0) -> None:
        """The run's `length` bytes are at `position` of `data`, which begins `moved` bytes into the block."""
        self.positions = array("q")
        self.ends = array("q")
        stop = position + length
        while position < stop:
            base_offset, batch_length, last_delta = _PLACE.unpack_from(data, position)
            if batch_length <= 0:
                break
            self.positions.append(position + moved)
            self.ends.append(base_offset + last_delta + 1)
            position += batch_length + LENGTH_OVERHEAD
        if position != stop:
            raise Corrupted("the batches of a run do not fill it")
        self._stop = stop + moved

    def fitting(self, start: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> tuple[int, int] | None:
        """Where to stop, in bytes and offsets, for a read that began at byte `start`."""
        first = bisect_left(self.positions, start)
        last = bisect_right(self.ends, end_offset) - 1
        if first > last:
            return None
        row = min(last, bisect_right(self.positions, start + max_bytes) - 1)
        if self._end_position(row) - start > max_bytes:
            row -= 1
        if row < first:
            if not at_least_one:
                return None
            row = first
        return self._end_position(row), self.ends[row]

    def _end_position(self, row: int) -> int:
        return self.positions[row + 1] if row + 1 < len(self.positions) else self._stop


def _run_end(run: Run) -> int:
    return run.end_offset
