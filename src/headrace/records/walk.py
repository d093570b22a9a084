"""Over the records of a batch, without making anything of them: are they whole, which have no key, which is how old.

A batch of a kilobyte may hold two million records. Asked one by one in the interpreter they would take the loop for seconds;
the kernel needs 10 ns for each. What is compressed is for a thread all the same (`log/inspection.py`): nobody knows how much
of it there will be.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.compiled import compiled
from headrace.errors import CorruptBatch, InvalidRecords, TooLarge
from headrace.limits import DECOMPRESSED_BYTES_MAX
from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, read_header
from headrace.records.compression import decompress
from headrace.records.record import read_varint

KEYLESS_MAX: Final = 64
"""How many records without a key are named; the first ones tell their producer enough."""
ANY_DELTA: Final = -1
"""As `delta_end`: whatever offset deltas there are."""
_RECORD_SIZE_MIN: Final = 7
"""Length, attributes, time, offset, no key, no value, no headers: a byte each."""
_VARINT_MAX: Final = 5
_VARLONG_MAX: Final = 10


class Walk(NamedTuple):
    """What was found on the way; -1 where nothing was."""

    broken: int
    """The first record that is not whole; their number when only bytes behind the last one are left over."""
    found: int
    """Offset delta of the first record of those asked for whose timestamp is late enough."""
    found_timestamp_delta: int
    newest: int
    """Offset delta."""
    newest_timestamp_delta: int
    keyless: tuple[int, ...]
    """Places of those without a key in their batch."""


class Timed(NamedTuple):
    """A record and its time, as ListOffsets tells them."""

    offset: int
    timestamp_ms: int


def check_records(batch: Buffer, header: BatchHeader, *, keys_needed: bool) -> None:
    """`InvalidRecords` when they are not what the header says, or some have no key where keys are needed."""
    try:
        walk = _walk_batch(batch, header, is_sparse=False)
    except (CorruptBatch, TooLarge) as error:
        raise InvalidRecords(str(error)) from error
    if walk.broken >= 0:
        at_fault = [(walk.broken, "the record is not whole")] if walk.broken < header.record_count else []
        raise InvalidRecords(f"{header.record_count} records were said to come, and they do not parse", at_fault)
    if keys_needed and walk.keyless:
        reason = "a compacted topic takes no record without a key"
        raise InvalidRecords(reason, [(index, reason) for index in walk.keyless])


def first_since(batch: Buffer, timestamp_ms: int, *, start: int) -> Timed | None:
    """The first record at or above offset `start` whose time is `timestamp_ms` or later."""
    header = read_header(batch)
    if header.is_log_append_time:
        # All have the time of the batch.
        first = max(start, header.base_offset)
        is_there = header.max_timestamp_ms >= timestamp_ms and first < header.end_offset
        return Timed(first, header.max_timestamp_ms) if is_there else None
    walk = _walk_batch(batch, header, start=start, timestamp_ms=timestamp_ms)
    if walk.found < 0:
        _check_whole(walk)
        return None
    return Timed(header.base_offset + walk.found, header.base_timestamp_ms + walk.found_timestamp_delta)


def newest_of(batch: Buffer, *, start: int) -> Timed | None:
    """The record at or above offset `start` with the greatest time."""
    header = read_header(batch)
    if header.is_log_append_time:
        return first_since(batch, header.max_timestamp_ms, start=start)
    walk = _walk_batch(batch, header, start=start)
    _check_whole(walk)
    if walk.newest < 0:
        return None
    return Timed(header.base_offset + walk.newest, header.base_timestamp_ms + walk.newest_timestamp_delta)


def _check_whole(walk: Walk) -> None:
    """Batches of an earlier release, and compressed ones, were taken without a look at their records."""
    if walk.broken >= 0:
        raise CorruptBatch("record does not parse")


def _walk_batch(
    batch: Buffer, header: BatchHeader, *, start: int = 0, timestamp_ms: int = 0, is_sparse: bool = True
) -> Walk:
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    data = decompress(header.codec, payload, size_max=DECOMPRESSED_BYTES_MAX)
    return walk_records(
        data,
        header.record_count,
        first_delta=max(start - header.base_offset, 0),
        timestamp_delta=_int64(timestamp_ms - header.base_timestamp_ms),
        is_sparse=is_sparse,
    )


def walk_records(
    data: Buffer,
    count: int,
    *,
    first_delta: int = 0,
    timestamp_delta: int = 0,
    is_sparse: bool,
    delta_end: int = ANY_DELTA,
) -> Walk:
    """`is_sparse`: some records may be missing, as key compaction leaves a batch; otherwise offsets are places.

    With a `delta_end` offset deltas must ascend, and stay below it. What is in the log already is read without that question.
    """
    if _kernel is None:
        return _walk(data, count, first_delta, timestamp_delta, is_sparse, delta_end)
    return Walk._make(_kernel.walk(data, count, first_delta, timestamp_delta, is_sparse, delta_end))


def record_ends(data: Buffer, count: int) -> Sequence[int]:
    """Where each of the records ends. `CorruptBatch` when there are not `count` whole ones."""
    found = array("I", (_ends if _kernel is None else _kernel.ends)(data, count))
    if len(found) != count:
        raise CorruptBatch(f"record {len(found)} of {count} does not parse")
    return found


def _int64(value: int) -> int:
    return max(min(value, 2**63 - 1), -(2**63))


# -- the twin ------------------------------------------------------------------------------------------------------------


def _walk(
    data: Buffer, count: int, first_delta: int, timestamp_delta: int, is_sparse: bool, delta_end: int = ANY_DELTA
) -> Walk:
    position, found, newest, former = 0, (-1, 0), (-1, 0), -1
    keyless: list[int] = []
    for index in range(count):
        try:
            position, time, delta, has_key = _walk_record(data, position)
            if not is_sparse and delta != index:
                raise CorruptBatch("offsets out of order in a batch")
            if delta_end >= 0 and not former < delta < delta_end:
                raise CorruptBatch("offsets out of order in a batch, or past its end")
            former = delta
        except (IndexError, CorruptBatch):
            return Walk(index, *found, *newest, tuple(keyless))
        if not has_key and len(keyless) < KEYLESS_MAX:
            keyless.append(index)
        if delta < first_delta:
            continue
        if found[0] < 0 and time >= timestamp_delta:
            found = (delta, time)
        if newest[0] < 0 or time > newest[1]:
            newest = (delta, time)
    return Walk(-1 if position == len(data) else count, *found, *newest, tuple(keyless))


def _ends(data: Buffer, count: int) -> bytes:
    found, position = array("I"), 0
    try:
        for _ in range(min(count, len(data) // _RECORD_SIZE_MIN)):
            position = _walk_record(data, position).end
            found.append(position)
    except (IndexError, CorruptBatch):
        pass  # Those in front of it are whole.
    return found.tobytes()


class _Walked(NamedTuple):
    end: int
    timestamp_delta: int
    offset_delta: int
    has_key: bool


def _walk_record(data: Buffer, position: int) -> _Walked:
    size, position = _number(data, position, len(data), _VARINT_MAX)
    end = position + size
    if size < 1 or end > len(data):
        raise CorruptBatch("a record runs past its batch")
    timestamp_delta, position = _number(data, position + 1, end, _VARLONG_MAX)
    offset_delta, position = _number(data, position, end, _VARINT_MAX)
    has_key, position = _pass_field(data, position, end)
    _, position = _pass_field(data, position, end)
    header_count, position = _number(data, position, end, _VARINT_MAX)
    if header_count < 0:
        raise CorruptBatch("a header count below zero")
    for _ in range(header_count):
        has_name, position = _pass_field(data, position, end)
        if not has_name:
            raise CorruptBatch("a header without a name")
        _, position = _pass_field(data, position, end)
    if position != end:
        raise CorruptBatch("bytes left over at the end of a record")
    return _Walked(end, timestamp_delta, offset_delta, has_key)


def _pass_field(data: Buffer, position: int, end: int) -> tuple[bool, int]:
    size, position = _number(data, position, end, _VARINT_MAX)
    if position + size > end:
        raise CorruptBatch("a field runs past its record")
    return size >= 0, position + max(size, 0)


def _number(data: Buffer, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    value, after = read_varint(data, position)
    if after > end or after - position > bytes_max:
        raise CorruptBatch("a number runs past its record, or is too long")
    return _int64_of(value), after


def _int64_of(value: int) -> int:
    """As sixty-four bits hold it: the tenth byte of a number has one bit that counts."""
    return (value + 2**63) % 2**64 - 2**63


_kernel: Final = compiled("headrace.records._walk")
