"""Over the records of a batch: the kernel and its twin see the same, and take the same for whole."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bombs import BOMB_TIME_MS, bomb
from tests.support.steps import Steps

from headrace.compiled import compiled
from headrace.errors import CorruptBatch, InvalidRecords
from headrace.records import walk as module
from headrace.records.batch import HEADER_SIZE, read_header, stamp
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_batch_records, read_varint
from headrace.records.walk import (
    KEYLESS_MAX,
    Timed,
    Walk,
    check_records,
    first_since,
    newest_of,
    record_ends,
    walk_records,
)

kernel = compiled("headrace.records._walk")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the extension was not built")

fields = st.one_of(st.none(), st.binary(max_size=200))
new_records = st.builds(
    NewRecord,
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(st.text(max_size=5), fields), max_size=3).map(tuple),
    timestamp_ms=st.integers(0, 10_000),
)


@pytest.fixture(params=["compiled", "pure"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(module, "_kernel", None)


@needs_kernel
@given(
    st.lists(new_records, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    st.integers(0, 6),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.integers(-1, 8),
)
def test_kernel_and_twin_see_the_same(
    records: list[NewRecord],
    changes: list[tuple[int, int]],
    first: int,
    timestamp_delta: int,
    is_sparse: bool,
    delta_end: int,
) -> None:
    data = build_batch(records, now_ms=0)[HEADER_SIZE:]
    for at, byte in changes:
        data[at % len(data)] = byte
    found = walk_records(
        bytes(data),
        len(records),
        first_delta=first,
        timestamp_delta=timestamp_delta,
        is_sparse=is_sparse,
        delta_end=delta_end,
    )
    assert found == module._walk(bytes(data), len(records), first, timestamp_delta, is_sparse, delta_end)


@needs_kernel
@given(
    st.lists(new_records, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    st.integers(-1, 2**31),
)
def test_kernel_and_twin_see_the_same_ends(
    records: list[NewRecord], changes: list[tuple[int, int]], count: int
) -> None:
    data = build_batch(records, now_ms=0)[HEADER_SIZE:]
    for at, byte in changes:
        data[at % len(data)] = byte
    assert kernel is not None
    for said in (len(records), count):
        assert kernel.ends(bytes(data), said) == module._ends(bytes(data), said)


@pytest.mark.usefixtures("each_way")
def test_records_end_where_the_next_one_begins() -> None:
    values = [b"x" * size for size in (1, 0, 300, 70_000)]
    data = bytes(build_batch([NewRecord(value=value) for value in values], now_ms=0)[HEADER_SIZE:])
    found = record_ends(data, len(values))
    assert found[-1] == len(data)
    starts = [0, *found]
    for value, start, end in zip(values, starts, found, strict=False):
        assert read_varint(data, start)[1] + read_varint(data, start)[0] == end
        assert value in data[start:end]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("count", [4, 2**31 - 1])
def test_ends_of_more_records_than_there_are_are_refused(count: int) -> None:
    data = bytes(build_batch([NewRecord(value=b"x")] * 3, now_ms=0)[HEADER_SIZE:])
    with pytest.raises(CorruptBatch, match="record 3 of"):
        record_ends(data, count)
    with pytest.raises(CorruptBatch, match="record 2 of 3"):
        record_ends(data[:-1], 3)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    ("deltas", "broken"),
    [((0, 1, 2), -1), ((0, 2), -1), ((2,), -1), ((1, 0), 1), ((1, 1), 1), ((0, 3), 1), ((3,), 0)],
    ids=["all", "one missing", "only the last", "backwards", "twice", "past the end", "past the end alone"],
)
def test_offsets_ascend_below_the_end_where_that_is_asked(deltas: tuple[int, ...], broken: int) -> None:
    data = b"".join(bytes([12, 0, 0, 2 * delta, 1, 1, 0]) for delta in deltas)
    assert walk_records(data, len(deltas), is_sparse=True, delta_end=3).broken == broken
    assert walk_records(data, len(deltas), is_sparse=True).broken == -1


@pytest.mark.usefixtures("each_way")
@given(st.lists(new_records, min_size=1, max_size=6), st.integers(0, 10_000), st.integers(0, 8))
def test_records_are_found_by_their_time(records: list[NewRecord], timestamp_ms: int, start: int) -> None:
    batch = build_batch(records, now_ms=0)
    stamp(batch, 3, 0)
    kept = [Timed(each.offset, each.timestamp_ms) for each in read_batch_records(batch) if each.offset >= start]
    assert first_since(batch, timestamp_ms, start=start) == next(
        (e for e in kept if e.timestamp_ms >= timestamp_ms), None
    )
    assert newest_of(batch, start=start) == (max(kept, key=lambda each: each.timestamp_ms) if kept else None)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    ("change", "is_whole"),
    [
        (lambda data: None, True),
        (lambda data: data.append(0), False),
        (lambda data: data.pop(), False),
        (lambda data: data.__setitem__(0, 0), False),
        (lambda data: data.__setitem__(3, 2), False),
        (lambda data: data.__setitem__(-1, 2), False),
        (lambda data: data.__setitem__(-1, 1), False),
    ],
    ids=["whole", "longer", "shorter", "empty", "elsewhere", "header", "headers below zero"],
)
def test_a_batch_is_whole_or_refused(change: Callable[[bytearray], None], is_whole: bool) -> None:
    data = build_batch([NewRecord(key=b"key", value=b"value")], now_ms=0)[HEADER_SIZE:]
    change(data)
    batch = bytearray(HEADER_SIZE) + data
    struct.pack_into(">qiibIhiqqqhii", batch, 0, 0, len(batch) - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    if is_whole:
        check_records(batch, read_header(batch), keys_needed=True)
    else:
        with pytest.raises(InvalidRecords):
            check_records(batch, read_header(batch), keys_needed=False)


@pytest.mark.usefixtures("each_way")
def test_records_without_a_key_are_named_up_to_a_bound() -> None:
    batch = build_batch([NewRecord(key=None if number % 2 else b"k", value=b"") for number in range(300)], now_ms=0)
    check_records(batch, read_header(batch), keys_needed=False)
    with pytest.raises(InvalidRecords) as refused:
        check_records(batch, read_header(batch), keys_needed=True)
    assert [index for index, _ in refused.value.failures] == list(range(1, 2 * KEYLESS_MAX, 2))


@pytest.mark.usefixtures("each_way")
def test_a_damaged_batch_is_said_to_be_so() -> None:
    batch = build_batch([NewRecord(value=b"value"), NewRecord(value=b"value")], now_ms=7)
    batch[-1] = 0x7F
    assert first_since(batch, 7, start=0) == Timed(0, 7)
    with pytest.raises(CorruptBatch):
        first_since(batch, 8, start=0)
    with pytest.raises(CorruptBatch):
        newest_of(batch, start=0)


@needs_kernel
def test_two_million_records_take_the_kernel_a_moment() -> None:
    """The interpreter alone needs half a minute, and the loop would wait for it: it takes no step for a record."""
    batch = bomb(2_000_000)
    assert len(batch) < 8_000
    steps = Steps()
    with steps.counted():
        assert first_since(batch, BOMB_TIME_MS + 1, start=0) is None
    assert steps.count < 2_000


def test_facts_stated_twice_agree() -> None:
    assert kernel is None or kernel.KEYLESS_MAX == KEYLESS_MAX
    assert Walk._fields[0] == "broken"
