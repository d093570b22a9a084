"""Many batches at once: whole ones, back to back, as memory and objects hold them.

What is asked of each is little, so asking costs more than answering: the kernel needs a tenth of the time of its twin.
"""

from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.compiled import compiled
from headrace.errors import Corrupted
from headrace.records.batch import HEADER_SIZE, Buffer, batch_size_at, read_header

_OFFSET_END: Final = 2**63
_COMBINING_WORTH: Final = 4 * 1024
"""From this size of a batch on: below it reading the bytes takes no longer than combining CRCs."""


class Summary(NamedTuple):
    """What a number of consecutive batches have between them."""

    end: int
    """Where the next one begins."""
    batch_count: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    """Of the last one."""
    max_timestamp_ms: int
    record_count: int
    codecs: int
    """Bit n is set when some batch uses Kafka's codec n."""
    attributes: int
    """Every bit that some batch has set."""


def summary_of(batches: Buffer, start: int, size_min: int) -> Summary:
    """The batches from the one at `start` on, until they have `size_min` bytes or there are no more: one at least.

    `Corrupted` when they are not whole, or their offsets do not rise.
    """
    if _kernel is None:
        return _summary_of(batches, start, size_min)
    try:
        return Summary._make(_kernel.summary_of(batches, start, size_min))
    except ValueError as error:
        raise Corrupted(str(error)) from None


def _summary_of(batches: Buffer, start: int, size_min: int) -> Summary:
    position, end = start, len(batches)
    count = record_count = codecs = attributes = 0
    base_offset = last_offset = leader_epoch = max_timestamp_ms = -1
    while not count or position < min(end, start + size_min):
        size = batch_size_at(batches, position) if end - position >= HEADER_SIZE else 0
        if size < HEADER_SIZE or position + size > end:
            raise Corrupted(f"no whole batch at {position}, {end - position} bytes before the end")
        header = read_header(batches, position)
        if not count:
            base_offset = header.base_offset
        elif header.base_offset <= last_offset:
            raise Corrupted(f"the batch at {position} goes back to offset {header.base_offset}")
        last_offset = header.end_offset - 1
        if not -_OFFSET_END <= last_offset < _OFFSET_END:
            raise Corrupted(f"the batch at {position} goes past the last offset there can be")
        leader_epoch = header.leader_epoch
        max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
        record_count += header.record_count
        codecs |= 1 << header.codec
        attributes |= header.attributes & 0xFFFF
        position += size
        count += 1
    return Summary(
        position,
        count,
        base_offset,
        last_offset,
        leader_epoch,
        max_timestamp_ms,
        record_count,
        codecs,
        attributes,
    )


def crc_of_batches(batches: Buffer, count: int, crc: int) -> int:
    """The CRC-32C of `count` whole batches, behind bytes whose CRC-32C is `crc`: from the CRCs that they carry.

    Faster than reading the bytes again, and stricter: what has rotted in memory since its producer's CRC was checked does not
    match the outcome, where a CRC of the rotten bytes would.
    """
    if _kernel is None or len(batches) < count * _COMBINING_WORTH:
        return int(crc32c(batches, crc))
    return int(_kernel.crc_of_batches(batches, crc))


_kernel: Final = compiled("headrace.records._stretch")
