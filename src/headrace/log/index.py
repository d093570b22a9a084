"""Where the batches of a partition's tail are: by offset, by byte position, by WAL address, by time.

Parallel arrays with bisect: about 40 bytes a batch, and a look-up costs a microsecond. The tail is everything not yet
uploaded, plus what is kept in memory for readers; it only ever loses batches at its front.
"""

from array import array
from bisect import bisect_left, bisect_right


class TailIndex:
    """One row per batch, in the order of the log. Dropping the front moves every row: keep offsets, not rows."""

    __slots__ = ("ends", "lsns", "max_timestamps", "offsets", "positions", "timestamp_high")

    def __init__(self) -> None:
        self.offsets = array("q")
        """Base offset of each batch."""
        self.positions = array("q")
        """Byte position of each batch in the partition's own sequence (arenas are cut out of that)."""
        self.ends = array("q")
        """End offset of each batch, exclusive."""
        self.lsns = array("q")
        """Address of each batch in the WAL."""
        self.max_timestamps = array("q")
        self.timestamp_high = -1
        """Newest timestamp that ever entered, so a search past it can stop at once."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, base_offset: int, end_offset: int, position: int, lsn: int, max_timestamp_ms: int) -> None:
        self.offsets.append(base_offset)
        self.ends.append(end_offset)
        self.positions.append(position)
        self.lsns.append(lsn)
        self.max_timestamps.append(max_timestamp_ms)
        if max_timestamp_ms > self.timestamp_high:
            self.timestamp_high = max_timestamp_ms

    def find(self, offset: int) -> int:
        """Index of the first batch that ends after `offset`: the one holding it, or the next behind a gap."""
        return bisect_right(self.ends, offset)

    def find_end(self, end_offset: int) -> int:
        """Index behind the last batch that lies wholly below `end_offset`."""
        return bisect_right(self.ends, end_offset)

    def find_position(self, position: int) -> int:
        """Index of the first batch at or behind byte `position`."""
        return bisect_left(self.positions, position)

    def find_time(self, timestamp_ms: int, first: int = 0) -> int:
        """Index of the first batch from `first` on with a record at or after `timestamp_ms`, or `len`."""
        if timestamp_ms > self.timestamp_high:
            return len(self.offsets)
        for index in range(first, len(self.offsets)):
            if self.max_timestamps[index] >= timestamp_ms:
                return index
        return len(self.offsets)

    def drop_front(self, count: int) -> None:
        if count <= 0:
            return
        for column in (self.offsets, self.positions, self.ends, self.lsns, self.max_timestamps):
            del column[:count]
