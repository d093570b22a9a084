"""From batches to sections: the payloads that a kernel walks, with everything else already decided.

A section is the uncompressed payload of one data batch. By the time one exists, its CRC has been verified, its codec
undone within a bound, and its transaction found not to be aborted. Per batch this is Python; per record nothing is.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import CorruptBatch
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
)
from headrace.records.builder import is_commit_marker
from headrace.records.compression import decompress
from headrace.records.record import read_batch_records

TABLE_WIDTH: Final = 9
"""Numbers per section, in step with the enum at the top of `_kernel.c`."""
RECORD_BYTES_MIN: Final = 7
"""The smallest record there is: a count that needs more bytes than the section has is a lie."""
HEADER_BYTES_MIN: Final = 2
"""The smallest header: two lengths."""
OFFSET_MAX: Final = 2**63 - 2**31 - 1
"""No base offset above this, so that adding a delta cannot overflow."""
_MARKER_KEY_SIZE: Final = 4


class Isolation(Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class AbortedTransaction(NamedTuple):
    """Batches of `producer_id` from `first_offset` on are void, up to `last_offset` or the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


@dataclass(slots=True)
class Sections:
    """Payloads waiting for a kernel: buffers, and a row of numbers for each section."""

    buffers: list[Buffer] = field(default_factory=list)
    table: "array[int]" = field(default_factory=lambda: array("q"))
    record_count: int = 0
    bytes_total: int = 0

    def add(self, buffer: Buffer, start: int, stop: int, header: BatchHeader) -> None:
        """Take one payload on. Raises `CorruptBatch` when it cannot hold as many records as it claims."""
        count = header.record_count
        if count * RECORD_BYTES_MIN > stop - start:
            raise CorruptBatch(f"batch at offset {header.base_offset} claims {count} records in {stop - start} bytes")
        if not self.buffers or self.buffers[-1] is not buffer:
            self.buffers.append(buffer)
        self.table.extend(
            (
                len(self.buffers) - 1,
                start,
                stop,
                count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp_ms,
                header.max_timestamp_ms,
                header.is_log_append_time,
            )
        )
        self.record_count += count
        self.bytes_total += stop - start


def collect_sections(
    data: Buffer,
    *,
    first: int,
    end: int,
    isolation: Isolation,
    aborted: Iterable[AbortedTransaction],
    section_bytes: int,
) -> Iterator[Sections]:
    """Sections of every batch of `data` that may hold offsets in [first, end), some `section_bytes` at a time.

    A cut-off last batch is left out. Raises `CorruptBatch` for anything a correct log cannot hold.
    """
    filter_aborted = _AbortedFilter(aborted if isolation is Isolation.READ_COMMITTED else ())
    sections = Sections()
    # One object for all uncompressed sections, so that `Sections.add` recognises the buffer.
    view = memoryview(data)
    for header, position, stop in _whole_batches(view):
        if header.base_offset >= end:
            break
        is_before = header.base_offset + header.last_offset_delta < first
        if is_before and not header.is_control:
            continue
        if crc32c(view[position + CRC_START : stop]) != header.crc:
            raise CorruptBatch(f"CRC-32C of the batch at offset {header.base_offset} does not match")
        # Markers below `first` count as well: they end transactions that reach into the range.
        if header.is_control:
            filter_aborted.see_marker(header, view[position:stop])
        elif header.record_count and not filter_aborted.is_aborted(header):
            _add_payload(sections, header, view, position + HEADER_SIZE, stop)
            if sections.bytes_total >= section_bytes:
                yield sections
                sections = Sections()
    if sections.record_count:
        yield sections


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
    """Header, start and end of each batch that is wholly there."""
    position, available = 0, len(view)
    while available - position >= HEADER_SIZE:
        header = read_header(view, position)
        stop = position + LENGTH_OVERHEAD + header.batch_length
        if header.magic != MAGIC or stop < position + HEADER_SIZE:
            raise CorruptBatch(f"no batch of format {MAGIC} at position {position}")
        if stop > available:
            return
        if header.record_count < 0 or header.last_offset_delta < 0 or not 0 <= header.base_offset <= OFFSET_MAX:
            raise CorruptBatch(
                f"batch at offset {header.base_offset} claims {header.record_count} records "
                f"and last offset delta {header.last_offset_delta}"
            )
        yield header, position, stop
        position = stop


def _add_payload(sections: Sections, header: BatchHeader, view: memoryview, start: int, stop: int) -> None:
    codec = header.codec
    if codec == Codec.NONE:
        sections.add(view, start, stop, header)
    else:
        payload = memoryview(decompress(codec, view[start:stop], size_max=DECOMPRESSED_BYTES_MAX))
        sections.add(payload, 0, len(payload), header)


class _AbortedFilter:
    """Which transactional batches are void, for batches seen in offset order.

    A range that names its last offset (from a manifest) ends there; one that does not (from a fetch response) ends at
    its producer's abort marker, as Kafka's consumers do it.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda transaction: transaction.first_offset):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def is_aborted(self, header: BatchHeader) -> bool:
        if not self._by_producer or not header.is_transactional:
            return False
        return any(
            transaction.first_offset <= header.base_offset
            and (transaction.last_offset is None or header.base_offset <= transaction.last_offset)
            for transaction in self._by_producer.get(header.producer_id, ())
        )

    def see_marker(self, header: BatchHeader, batch: memoryview) -> None:
        waiting = self._by_producer.get(header.producer_id)
        if not waiting:
            return
        marker = next(iter(read_batch_records(batch, header)), None)
        if marker is None or marker.key is None or len(marker.key) < _MARKER_KEY_SIZE:
            raise CorruptBatch(f"control batch at offset {header.base_offset} holds no marker")
        if is_commit_marker(marker.key):
            return
        ended = next((t for t in waiting if t.last_offset is None and t.first_offset <= header.base_offset), None)
        if ended is not None:
            waiting.remove(ended)
