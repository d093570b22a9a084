"""From a client's batch to what a module is given, and back. Pure.

A module sees the records section of a batch in the clear, as Kafka's message format 2 lays it out, and the batch's base time. It
may change, drop and keep records; it cannot add any, nor change their order: each keeps its offset. Whatever it gives back is
looked at like a stranger's bytes. The batch keeps its span of offsets, its producer and its codec, so a record that was dropped
leaves an unused offset inside it, as compaction does.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.errors import CorruptBatch, InvalidRecords, TooLarge, TransformFailed
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer, read_header
from headrace.records.builder import rebuild_batch
from headrace.records.compression import decompress
from headrace.records.walk import walk_records

_INT64_MAX: Final = 2**63 - 1


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Records on their way into a module, or out of it."""

    count: int
    base_timestamp_ms: int
    records: Buffer


Run = Callable[[Payload], Payload]
"""A module, as far as its batches are concerned; raises `TransformFailed`."""


def transform(batch: Buffer, run: Run, *, keys_needed: bool, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `run` makes of a client's batch, which has been checked but for its records.

    Raises `InvalidRecords` for a batch whose records do not parse, which no module ever sees, and `TransformFailed`.
    """
    header = read_header(batch)
    given = _opened(batch, header, size_max)
    return _closed(header, run(given), keys_needed=keys_needed)


def without_records(batch: Buffer) -> bytes:
    """A batch that takes the offsets of `batch` and has none of its records. Its producer's sequence goes on."""
    header = read_header(batch)
    return _closed(header, Payload(count=0, base_timestamp_ms=header.base_timestamp_ms, records=b""), keys_needed=False)


def _opened(batch: Buffer, header: BatchHeader, size_max: int) -> Payload:
    try:
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], size_max=size_max)
    except (CorruptBatch, TooLarge) as error:
        raise InvalidRecords(str(error)) from error
    walk = walk_records(data, header.record_count, is_sparse=False)
    if walk.broken >= 0:
        at_fault = [(walk.broken, "the record is not whole")] if walk.broken < header.record_count else []
        raise InvalidRecords(f"{header.record_count} records were said to come, and they do not parse", at_fault)
    return Payload(count=header.record_count, base_timestamp_ms=header.base_timestamp_ms, records=data)


def _closed(header: BatchHeader, made: Payload, *, keys_needed: bool) -> bytes:
    if not 0 <= made.count <= header.record_count:
        raise TransformFailed(f"the module gave {made.count} records for {header.record_count}")
    walk = walk_records(made.records, made.count, is_sparse=True, delta_end=header.last_offset_delta + 1)
    if walk.broken >= 0:
        raise TransformFailed(
            f"the module gave bytes that are not {made.count} records in the order of their offsets (record {walk.broken})"
        )
    if keys_needed and walk.keyless:
        raise TransformFailed("the module left a record without a key, which a compacted topic does not take")
    newest_ms = made.base_timestamp_ms + walk.newest_timestamp_delta if made.count else NO_TIMESTAMP
    if not NO_TIMESTAMP <= newest_ms <= _INT64_MAX or not NO_TIMESTAMP <= made.base_timestamp_ms <= _INT64_MAX:
        raise TransformFailed(f"the module gave records of the time {newest_ms}")
    changed = header._replace(
        base_timestamp_ms=made.base_timestamp_ms, max_timestamp_ms=newest_ms, record_count=made.count
    )
    return rebuild_batch(changed, made.records)
