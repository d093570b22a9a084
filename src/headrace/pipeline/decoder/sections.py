"""From batches to sections: the payloads that a kernel walks, with everything else already decided.

A section is the uncompressed payload of one data batch. By the time one exists, its CRC has been verified, its codec
undone within a bound, and its transaction found not to be aborted. Per batch this is Python; per record nothing is.

A batch with a wrong CRC was damaged after it was written, and that is an error. A batch with the right CRC whose records
cannot be read was sent so by its producer: brokers do not look inside batches. It comes out as `Unreadable`.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import CorruptBatch, TooLarge
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
)
from headrace.records.builder import is_commit_marker
from headrace.records.compression import decompress_into
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
_INFLATED_BYTES_MIN: Final = 8 * 1024 * 1024
"""Room to begin with: what becomes one Arrow batch, and the payload that makes it full."""


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
    batches: list[memoryview] = field(default_factory=list)
    """The batch of every section as it lies in the log."""

    def add(self, buffer: Buffer, start: int, stop: int, header: BatchHeader, batch: memoryview) -> None:
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
        self.batches.append(batch)
        self.record_count += count
        self.bytes_total += stop - start

    def singly(self) -> "Iterator[Sections]":
        """Every section by itself, to find the one that a kernel cannot read."""
        for index, batch in enumerate(self.batches):
            row = self.table[index * TABLE_WIDTH : (index + 1) * TABLE_WIDTH]
            which, start, stop, count = row[:4]
            row[0] = 0
            yield Sections([self.buffers[which]], row, count, stop - start, [batch])


class Unreadable(NamedTuple):
    """A batch as its producer sent it, of which no record can be read."""

    header: BatchHeader
    batch: memoryview
    reason: str


class Inflated:
    """Memory that payloads are decompressed into, one behind the other, and that is used again for the next sections.

    Touching fresh memory costs as much as decompressing into it does. It grows for a payload that does not fit, and not
    beyond the bound on what a batch may inflate to.
    """

    def __init__(self) -> None:
        self._view = memoryview(bytearray())
        self._fill = 0

    def add(self, sections: Sections, header: BatchHeader, batch: memoryview) -> None:
        """Decompress `batch` into `sections`. Raises `TooLarge` when there is no room left: `clear` makes some."""
        start = self._fill
        stop = start + decompress_into(header.codec, batch[HEADER_SIZE:], self._view[start:])
        sections.add(self._view, start, stop, header, batch)
        self._fill = stop

    def clear(self) -> None:
        """Forget what was decompressed so far; kernels that got it must be done with it."""
        self._fill = 0

    def grow(self) -> bool:
        """Make more room, if there may be more, with nothing in it."""
        if len(self._view) >= DECOMPRESSED_BYTES_MAX:
            return False
        size = max(len(self._view) * 4, _INFLATED_BYTES_MIN)
        self._view = memoryview(bytearray(min(size, DECOMPRESSED_BYTES_MAX)))
        self._fill = 0
        return True


def collect_sections(
    data: Buffer,
    *,
    first: int,
    end: int,
    isolation: Isolation,
    aborted: Iterable[AbortedTransaction],
    section_bytes: int,
    inflated: Inflated,
) -> Iterator[Sections | Unreadable]:
    """Sections of every batch of `data` that may hold offsets in [first, end), some `section_bytes` at a time.

    What is given out holds until the next is asked for: memory is used again. A cut-off last batch is left out. Raises
    `CorruptBatch` for anything a correct log cannot hold. A batch that holds no records stands for its offsets and gives
    nothing.
    """
    filter_aborted = _AbortedFilter(aborted if isolation is Isolation.READ_COMMITTED else ())
    sections = Sections()
    inflated.clear()
    # One object for all uncompressed sections, so that `Sections.add` recognises the buffer.
    view = memoryview(data)
    for header, position, stop in _whole_batches(view):
        if header.base_offset >= end:
            break
        attributes = header.attributes
        is_before = header.base_offset + header.last_offset_delta < first
        if is_before and not attributes & CONTROL:
            continue
        if crc32c(view[position + CRC_START : stop]) != header.crc:
            raise CorruptBatch(f"CRC-32C of the batch at offset {header.base_offset} does not match")
        # Markers below `first` count as well: they end transactions that reach into the range.
        if attributes & CONTROL:
            filter_aborted.see_marker(header, view[position:stop])
            continue
        if not header.record_count or filter_aborted.is_aborted(header):
            continue
        batch = view[position:stop]
        try:
            if not attributes & CODEC_MASK:
                sections.add(view, position + HEADER_SIZE, stop, header, batch)
            elif not _inflate_beside(inflated, sections, header, batch):
                if sections.record_count:
                    yield sections
                    sections = Sections()
                _inflate_alone(inflated, sections, header, batch)
        except (CorruptBatch, TooLarge) as error:
            if sections.record_count:
                yield sections
                sections = Sections()
                inflated.clear()
            yield Unreadable(header, batch, str(error))
        if sections.bytes_total >= section_bytes:
            yield sections
            sections = Sections()
            inflated.clear()
    if sections.record_count:
        yield sections


def _inflate_beside(inflated: Inflated, sections: Sections, header: BatchHeader, batch: memoryview) -> bool:
    """Behind what was decompressed before; False when there is no room for it."""
    try:
        inflated.add(sections, header, batch)
    except TooLarge:
        return False
    return True


def _inflate_alone(inflated: Inflated, sections: Sections, header: BatchHeader, batch: memoryview) -> None:
    """Into memory that holds nothing else, and grows until it is enough or as large as it may be."""
    inflated.clear()
    while True:
        try:
            inflated.add(sections, header, batch)
        except TooLarge:
            if not inflated.grow():
                raise
        else:
            return


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
    """Header, start and end of each batch that is wholly there."""
    position, available = 0, len(view)
    unpack, new_tuple = HEADER.unpack_from, tuple.__new__
    while available - position >= HEADER_SIZE:
        header = new_tuple(BatchHeader, unpack(view, position))
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
