"""The tail of a partition: its newest batches in memory, and where each of them is in the WAL.

Batches enter at the end and leave at the front. A row of the index stays while the WAL must keep the batch or memory still
serves it; memory leaves a whole chunk at a time. What is in memory is always a suffix of what is in the index.

Knows bytes, offsets and addresses. Durability, epochs, producers and who may read what are the partition's business.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple, Protocol

from headrace.log.arena import Chunk
from headrace.log.index import TailIndex
from headrace.records.batch import Buffer


class TailRead(NamedTuple):
    """Whole batches as they lie in memory; the slices are back to back in offset order."""

    slices: list[memoryview]
    size: int
    end_offset: int


class StoredBatch(NamedTuple):
    """Where a batch is in the WAL, and which one must be found there."""

    lsn: int
    size: int
    base_offset: int


class Memory(Protocol):
    """Where chunks come from and go to."""

    def take_chunk(self, size_needed: int, previous: Chunk | None) -> Chunk: ...

    def give_back(self, chunk: Chunk) -> None: ...


EMPTY_READ = TailRead([], 0, -1)


class Tail:
    __slots__ = ("_chunks", "_memory", "_position", "index")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chunks: list[Chunk] = []
        self._position = 0
        self.index = TailIndex()

    # -- growing -------------------------------------------------------------------------------------------------

    def place(self, batch: Buffer) -> memoryview:
        """Copy `batch` behind the last one; it counts once `add` says where the WAL has it."""
        size = len(batch)
        chunk = self.last_chunk
        if chunk is None or chunk.size - chunk.used < size:
            chunk = self._memory.take_chunk(size, chunk)
            chunk.position = self._position
            self._chunks.append(chunk)
        view = chunk.view[chunk.used : chunk.used + size]
        view[:] = batch
        return view

    def add(self, base_offset: int, end_offset: int, *, lsn: int, size: int, max_timestamp_ms: int) -> None:
        """The batch just placed is in the tail."""
        self._chunks[-1].used += size
        self.index.add(base_offset, end_offset, self._position, lsn, max_timestamp_ms)
        self._position += size

    def add_stored(self, base_offset: int, end_offset: int, *, lsn: int, size: int, max_timestamp_ms: int) -> None:
        """A batch that the WAL has and memory does not: recovery, before anything is placed."""
        self.index.add(base_offset, end_offset, self._position, lsn, max_timestamp_ms)
        self._position += size

    @property
    def last_chunk(self) -> Chunk | None:
        """The one that is being filled."""
        return self._chunks[-1] if self._chunks else None

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def memory_start(self) -> int | None:
        """From this offset on memory holds everything; None when it is empty."""
        if not self._chunks:
            return None
        row = self.index.find_position(self._chunks[0].position)
        return self.index.offsets[row] if row < len(self.index) else None

    def is_hot(self, offset: int) -> bool:
        """Whether memory holds everything from `offset` on; false also for an empty memory."""
        start = self.memory_start
        return start is not None and offset >= start

    def read(self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> TailRead:
        """From memory: the batch that holds `offset` and the ones behind it, below `end_offset`. Needs `is_hot`."""
        index = self.index
        first = index.find(offset)
        last = index.find_end(end_offset)
        if first >= last:
            return EMPTY_READ
        start = index.positions[first]
        fitting = index.find_position(start + max_bytes + 1) - 1
        if fitting >= len(index) - 1 and self._position - start <= max_bytes:
            fitting = len(index)
        if fitting <= first:
            if not at_least_one:
                return EMPTY_READ
            fitting = first + 1
        last = min(last, fitting)
        end = self._end_of(last - 1)
        return TailRead(self._slices(start, end), end - start, index.ends[last - 1])

    def _slices(self, start: int, end: int) -> list[memoryview]:
        chunks = self._chunks
        number = bisect_right(chunks, start, key=_position_of) - 1
        slices = []
        while start < end:
            chunk = chunks[number]
            inside = start - chunk.position
            stop = min(chunk.used, inside + end - start)
            slices.append(chunk.view[inside:stop])
            start += stop - inside
            number += 1
        return slices

    def stored(self, offset: int, max_bytes: int, end_offset: int) -> list[StoredBatch]:
        """The same batches as `read` would give, at least one where there is any, by their place in the WAL."""
        index = self.index
        found: list[StoredBatch] = []
        total = 0
        for row in range(index.find(offset), index.find_end(end_offset)):
            size = self._end_of(row) - index.positions[row]
            if found and total + size > max_bytes:
                break
            found.append(StoredBatch(index.lsns[row], size, index.offsets[row]))
            total += size
        return found

    # -- measuring -----------------------------------------------------------------------------------------------

    def _end_of(self, row: int) -> int:
        """Byte position behind the batch of `row`."""
        return self.index.positions[row + 1] if row + 1 < len(self.index) else self._position

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Bytes of the batches from the one that holds `offset` up to `end_offset`."""
        first, last = self.index.find(offset), self.index.find_end(end_offset)
        return self._end_of(last - 1) - self.index.positions[first] if first < last else 0

    def bytes_from(self, offset: int) -> int:
        row = self.index.find(offset)
        return self._position - self.index.positions[row] if row < len(self.index) else 0

    @property
    def size(self) -> int:
        return self._position - self.index.positions[0] if len(self.index) else 0

    def lsn_of(self, offset: int, lsn_min: int = 0) -> int | None:
        """Address of the first batch at or above `lsn_min` that ends behind `offset`; None when there is none."""
        row = self.index.find(offset)
        if lsn_min:
            row = bisect_left(self.index.lsns, lsn_min, row)
        return self.index.lsns[row] if row < len(self.index) else None

    def stored_between(self, offset: int, start_lsn: int, end_lsn: int) -> list[StoredBatch]:
        """The batches behind `offset` whose addresses lie in `[start_lsn, end_lsn)`."""
        index = self.index
        first = bisect_left(index.lsns, start_lsn, index.find(offset))
        last = bisect_left(index.lsns, end_lsn, first)
        return [
            StoredBatch(index.lsns[row], self._end_of(row) - index.positions[row], index.offsets[row])
            for row in range(first, last)
        ]

    # -- letting go ----------------------------------------------------------------------------------------------

    def drop_chunk(self, *, kept_end: int) -> bool:
        """Give the oldest full chunk back, if everything in it lies below `kept_end`."""
        if len(self._chunks) < 2:
            return False
        index = self.index
        row = index.find_position(self._chunks[1].position)
        if row < len(index):
            end = index.offsets[row]
        else:
            # The second chunk is empty still, so the first one reaches to the end of the tail, if there is any.
            end = index.ends[-1] if len(index) else kept_end
        if end > kept_end:
            return False
        self._memory.give_back(self._chunks.pop(0))
        return True

    def prune(self, uploaded_end: int) -> None:
        """Forget the batches below `uploaded_end` that memory does not hold."""
        keep = self.index.find(uploaded_end)
        if self._chunks:
            keep = min(keep, self.index.find_position(self._chunks[0].position))
        self.index.drop_front(keep)

    def clear(self) -> None:
        for chunk in self._chunks:
            self._memory.give_back(chunk)
        self._chunks.clear()
        self.index = TailIndex()


def _position_of(chunk: Chunk) -> int:
    return chunk.position
