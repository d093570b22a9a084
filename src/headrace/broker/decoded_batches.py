"""Batches taken apart, kept for whoever reads them in small pieces.

A JSON client may fetch a batch of a thousand records one record at a time. Taking it apart for each of them would cost a
millisecond every time, during which no other client is served. Records in the log never change, so what was taken
apart stays right; the checksum in the key tells apart two batches that had the same place in different lives.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from headrace.log.partition import PartitionLog
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.record import Record, read_batch_records

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
_RECORD_OVERHEAD: Final = 250
"""What a record weighs in memory beside its key, value and headers, about."""

DECOMPRESSED_AT_ONCE: Final = 2 * 1024 * 1024
"""Of one batch, on the loop: a few milliseconds. Most producers send less than a megabyte."""

_Key = tuple[bytes, int, int, int]


def records_at_once(batch: Buffer, header: BatchHeader) -> list[Record]:
    """The records of a batch without their headers, on the loop; `TooLarge` where that would take too long."""
    return list(read_batch_records(batch, header, size_max=DECOMPRESSED_AT_ONCE, with_headers=False))


class DecodedBatches:
    """The most recently used ones, under a byte budget."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Key, tuple[list[Record], int]] = OrderedDict()
        self.kept_bytes = 0

    def records_of(self, partition: PartitionLog, header: BatchHeader, batch: Buffer) -> Sequence[Record]:
        key = (partition.topic_id, partition.index, header.base_offset, header.crc)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[0]
        records = records_at_once(batch, header)
        weight = sum(len(each.value or b"") + len(each.key or b"") + _RECORD_OVERHEAD for each in records)
        if weight <= self._bytes_max:
            self._kept[key] = (records, weight)
            self.kept_bytes += weight
            while self.kept_bytes > self._bytes_max:
                self.kept_bytes -= self._kept.popitem(last=False)[1][1]
        return records
