"""Record batches: what is accepted, what a broker stamps, and what the checksum covers."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import (
    CorruptBatch,
    HeadraceError,
    InvalidRecords,
    InvalidTimestamp,
    TooLarge,
    UnsupportedCompression,
)
from headrace.records.batch import (
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    batch_size_at,
    check_batch,
    check_timestamp,
    has_valid_crc,
    iterate_batches,
    read_header,
    stamp,
    stamp_append_time,
)
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord, read_batch_records

NOW_MS = 1_700_000_000_000
SIZE_MAX = 1 << 20


def batch_of(*values: bytes) -> bytearray:
    return build_batch([NewRecord(value=value) for value in values], now_ms=NOW_MS)


def altered(position: int, layout: str, *values: int, is_resealed: bool = False) -> bytearray:
    batch = batch_of(b"one", b"two")
    struct.pack_into(layout, batch, position, *values)
    if is_resealed:
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@pytest.mark.requirement("R4.48")
def test_header_is_read_field_by_field() -> None:
    fields = (7, 100, 3, 2, 0xFFFFFFFF, 0x1F, 9, 11, 12, 13, 14, 15, 10)
    header = read_header(HEADER.pack(*fields))
    assert header == BatchHeader(*fields)
    assert (header.size, header.end_offset, header.codec) == (112, 17, 7)
    assert (header.is_log_append_time, header.is_transactional, header.is_control) == (True, True, False)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 60])
def test_header_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(bytes(batch_of(b"x"))[:size])


@pytest.mark.trap(18, 19)
@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (altered(16, ">b", 0), InvalidRecords),
        (altered(16, ">b", 1), InvalidRecords),
        (altered(16, ">b", 3), CorruptBatch),
        (altered(16, ">b", -1), CorruptBatch),
        (altered(8, ">i", 5000), InvalidRecords),
        (altered(8, ">i", 48), CorruptBatch),
        (altered(8, ">i", 13), CorruptBatch),
        (altered(8, ">i", -12), CorruptBatch),
        (altered(8, ">i", -(2**31)), CorruptBatch),
        (altered(17, ">I", 1), CorruptBatch),
        (altered(57, ">i", 3, is_resealed=True), InvalidRecords),
        (altered(57, ">i", 0, is_resealed=True), InvalidRecords),
        (altered(57, ">i", -1, is_resealed=True), InvalidRecords),
        (altered(23, ">i", -1, is_resealed=True), InvalidRecords),
        (altered(21, ">h", 0x20, is_resealed=True), InvalidRecords),
        (altered(21, ">h", 0x30, is_resealed=True), InvalidRecords),
        (altered(43, ">qhi", 5, 0, -1, is_resealed=True), InvalidRecords),
        (altered(43, ">qhi", 5, -1, 0, is_resealed=True), InvalidRecords),
        (altered(43, ">qhi", -2, 0, 0, is_resealed=True), InvalidRecords),
        (altered(21, ">h", 5, is_resealed=True), UnsupportedCompression),
        (altered(21, ">h", 7, is_resealed=True), UnsupportedCompression),
        (batch_of(b"one") + batch_of(b"two"), InvalidRecords),
        (bytearray(), InvalidRecords),
        (bytearray(HEADER_SIZE), CorruptBatch),
        *((batch_of(b"cut short")[:size], InvalidRecords) for size in (1, 11, 12, 16, 17, 60, 61, 70)),
    ],
)
def test_batch_against_the_rules_is_refused_by_its_kind(batch: bytearray, error: type[HeadraceError]) -> None:
    with pytest.raises(HeadraceError) as raised:
        check_batch(batch, size_max=SIZE_MAX)
    assert type(raised.value) is error


@pytest.mark.trap(22)
def test_size_is_checked_before_anything_else() -> None:
    batch = batch_of(b"x" * 1000)
    assert check_batch(batch, size_max=len(batch)).record_count == 1
    with pytest.raises(TooLarge):
        check_batch(batch, size_max=len(batch) - 1)


@pytest.mark.trap(18)
@given(position=st.integers(min_value=0), bit=st.integers(0, 7))
def test_any_bit_that_changes_on_the_way_is_noticed(position: int, bit: int) -> None:
    """All but the base offset and the leader epoch, which are ours to write."""
    batch = batch_of(b"some", b"records", b"here")
    position %= len(batch)
    batch[position] ^= 1 << bit
    if position < 8 or 12 <= position < 16:
        check_batch(batch, size_max=SIZE_MAX)
    else:
        with pytest.raises(CorruptBatch):
            check_batch(batch, size_max=SIZE_MAX)


@pytest.mark.trap(18)
@given(offset=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**31 - 1), padding=st.integers(0, 100))
def test_stamp_changes_offset_and_epoch_and_leaves_the_checksum_true(offset: int, epoch: int, padding: int) -> None:
    original = batch_of(b"a", b"b")
    buffer = bytearray(padding) + original
    stamp(memoryview(buffer)[padding:], offset, epoch)
    batch = buffer[padding:]
    assert buffer[:padding] == bytes(padding)
    assert has_valid_crc(batch)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    assert batch[8:12] + batch[16:] == original[8:12] + original[16:]


@pytest.mark.trap(18)
def test_append_time_goes_into_every_record_and_into_the_checksum() -> None:
    batch = build_batch([NewRecord(value=b"x", timestamp_ms=5), NewRecord(value=b"y", timestamp_ms=9)], now_ms=0)
    stamp_append_time(batch, NOW_MS)
    assert has_valid_crc(batch)
    assert check_batch(batch, size_max=SIZE_MAX).is_log_append_time
    assert [record.timestamp_ms for record in read_batch_records(batch)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize(
    ("age", "is_taken"), [(0, True), (-1000, True), (-1001, False), (500, True), (501, False), (10**12, False)]
)
def test_timestamps_are_held_to_both_bounds(age: int, is_taken: bool) -> None:
    header = read_header(build_batch([NewRecord(value=b"x", timestamp_ms=NOW_MS - age)], now_ms=0))
    if is_taken:
        check_timestamp(header, now_ms=NOW_MS, before_ms=500, after_ms=1000)
    else:
        with pytest.raises(InvalidTimestamp):
            check_timestamp(header, now_ms=NOW_MS, before_ms=500, after_ms=1000)


def test_batch_without_timestamps_has_no_wrong_ones() -> None:
    header = read_header(build_batch([NewRecord(value=b"x", timestamp_ms=-1)], now_ms=0))
    check_timestamp(header, now_ms=NOW_MS, before_ms=0, after_ms=0)


@given(st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=5), st.data())
def test_batches_back_to_back_come_apart_and_a_cut_one_is_left_out(
    groups: list[list[bytes]], data: st.DataObject
) -> None:
    batches = [bytes(batch_of(*group)) for group in groups]
    whole = b"".join(batches)
    assert [bytes(view) for _, view in iterate_batches(whole)] == batches
    cut = data.draw(st.integers(0, len(whole)))
    expected, end = [], 0
    for batch in batches:
        end += len(batch)
        if end <= cut:
            expected.append(batch)
    assert [bytes(view) for _, view in iterate_batches(whole[:cut])] == expected


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_absurd_length_ends_the_iteration(length: int) -> None:
    batch = altered(8, ">i", length)
    assert batch_size_at(batch, 0) == -1
    assert list(iterate_batches(batch)) == []


@pytest.mark.trap(27)
@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_a_control_batch_of_one_offset(is_commit: bool) -> None:
    marker = build_marker(is_commit=is_commit, producer_id=9, producer_epoch=2, coordinator_epoch=4, now_ms=NOW_MS)
    header = read_header(marker)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert (header.record_count, header.last_offset_delta) == (1, 0)
    (record,) = read_batch_records(marker)
    assert record.key == struct.pack(">hh", 0, int(is_commit))
    assert record.value == struct.pack(">hi", 0, 4)
    with pytest.raises(InvalidRecords):
        check_batch(marker, size_max=SIZE_MAX)
