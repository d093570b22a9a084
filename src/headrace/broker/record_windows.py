"""A few records out of a batch that holds very many, for the JSON doors.

Making a Python object of each record of such a batch would keep the loop for seconds. So a thread makes only those that
are asked for, and lets others have the interpreter after every few hundred. Where a reader stopped is remembered, so that one
who goes on from there need not pass over all records before it again.
"""

import time
from collections import OrderedDict
from functools import partial
from typing import Final, NamedTuple

from headrace.errors import CorruptBatch
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.log.partition import PartitionLog
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer
from headrace.records.compression import decompress
from headrace.records.record import Record, read_record_at, read_varint

RECORDS_AT_ONCE: Final = 5_000
"""A batch with more is not taken apart on the loop: some ten milliseconds. And at most so many come of it in one read."""
_WINDOW_BYTES_MAX: Final = 16 * 1024 * 1024
"""No door's frame is larger; the rest of what a bomb holds is not copied."""
_RECORDS_PER_BREATH: Final = 200
_BOOKMARKS_MAX: Final = 1024

_Key = tuple[bytes, int, int, int]


class _Bookmark(NamedTuple):
    """A record's offset, its place in the batch, and where it begins in the decompressed bytes."""

    offset: int
    place: int
    position: int


class Window(NamedTuple):
    records: list[Record]
    next_offset: int
    """Behind the last of them; behind the batch when no record is left in it."""


class RecordWindows:
    """Belongs to one event loop; the thread that reads is the partition's inspection."""

    def __init__(self) -> None:
        self._bookmarks: OrderedDict[_Key, _Bookmark] = OrderedDict()

    async def read(
        self, partition: PartitionLog, header: BatchHeader, batch: Buffer, *, start: int, count: int
    ) -> Window:
        """At most `count` records of `batch`, and never more than `RECORDS_AT_ONCE`, from offset `start` on."""
        key = (partition.topic_id, partition.index, header.base_offset, header.crc)
        bookmark = self._bookmarks.pop(key, None)
        if bookmark is None or bookmark.offset > start:
            bookmark = _Bookmark(header.base_offset, 0, 0)
        look = partial(_read, header=header, bookmark=bookmark, start=start, count=min(count, RECORDS_AT_ONCE))
        window, reached = await partition.inspection.beside(batch, look)
        self._bookmarks[key] = reached
        if len(self._bookmarks) > _BOOKMARKS_MAX:
            self._bookmarks.popitem(last=False)
        return window


def _read(
    batch: Buffer, *, header: BatchHeader, bookmark: _Bookmark, start: int, count: int
) -> tuple[Window, _Bookmark]:
    """In a thread."""
    data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], size_max=DECOMPRESSED_BYTES_MAX)
    is_dense = header.last_offset_delta + 1 == header.record_count
    records: list[Record] = []
    size = 0
    position = bookmark.position
    try:
        for place in range(bookmark.place, header.record_count):
            if not place % _RECORDS_PER_BREATH:
                time.sleep(0)  # Lets the loop have the interpreter, if it wants it.
            length, begin = read_varint(data, position)
            if length < 1 or begin + length > len(data):
                raise CorruptBatch("record is cut short")
            if len(records) == count or size >= _WINDOW_BYTES_MAX:
                return Window(records, records[-1].offset + 1), _Bookmark(records[-1].offset + 1, place, position)
            if not is_dense or header.base_offset + place >= start:
                record = read_record_at(data, begin, header, with_headers=False)
                if record.offset >= start:
                    records.append(record)
                    size += len(record.key or b"") + len(record.value or b"")
            position = begin + length
    except IndexError as error:
        raise CorruptBatch("record does not parse") from error
    return Window(records, header.end_offset), _Bookmark(header.end_offset, header.record_count, position)
