import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Corrupted
from headrace.records.batch import Codec, stamp
from headrace.records.builder import build_batch, build_gap
from headrace.records.filters import parse_filter
from headrace.records.record import NewRecord, read_records
from headrace.tier.search.scan import scan

NOW_MS = 1_700_000_000_000
values = st.sampled_from([b"", b"tea", b'{"a": "tea"}', b'{"a": "t\\u0065a"}', b'{"a": 5}', b"\xff" * 70, None])
records = st.builds(
    lambda key, value, name: NewRecord(key=key, value=value, headers=((name, b"h"),)),
    st.sampled_from([None, b"k", b"tea", b"x" * 200]),
    values,
    st.sampled_from(["source", "tea"]),
)
FILTERS = [
    'key == "tea"',
    'json.a == "tea"',
    'value contains "te"',
    'header.tea == "h"',
    "json.a >= 5",
    'not key == "k"',
    "",
    '"tea"',
    "offset >= 2",
]


def batches_of(groups: list[list[NewRecord]], codec: int = 0) -> bytes:
    data, offset = b"", 0
    for group in groups:
        batch = build_batch(group, now_ms=NOW_MS, codec=codec)
        stamp(batch, offset, 0)
        offset += len(group)
        data += bytes(batch)
    return data


@given(
    groups=st.lists(st.lists(records, min_size=1, max_size=80), min_size=1, max_size=4),
    text=st.sampled_from(FILTERS),
    start=st.integers(0, 5),
    end=st.integers(3, 400),
)
def test_a_scan_finds_exactly_what_reading_every_record_finds(
    groups: list[list[NewRecord]], text: str, start: int, end: int
) -> None:
    data, chosen = batches_of(groups), parse_filter(text)
    expected = [each for each in read_records(data) if start <= each.offset < end and chosen.matches(each)]
    seen = scan(data, chosen, start=start, end=end)
    assert [match.record for match in seen.matches] == expected
    assert seen.consumed == len(data)


@pytest.mark.parametrize("codec", [0, Codec.GZIP, Codec.ZSTD])
def test_batches_that_are_cut_are_left_for_the_next_piece(codec: int) -> None:
    data = batches_of([[NewRecord(value=b"tea")], [NewRecord(value=b"tea" * 50)]], codec)
    chosen = parse_filter('value contains "tea"')
    for cut in range(len(data) + 1):
        first = scan(data[:cut], chosen, start=0, end=9)
        second = scan(data[first.consumed :], chosen, start=0, end=9)
        found = [match.record.offset for match in (*first.matches, *second.matches)]
        assert found == [0, 1]


def test_bytes_that_are_not_what_was_written_are_never_searched() -> None:
    data = bytearray(batches_of([[NewRecord(value=b"tea")]]))
    data[-2] ^= 1
    with pytest.raises(Corrupted, match="offset 0"):
        scan(data, parse_filter('value contains "tea"'), start=0, end=9)


def test_offsets_without_records_are_passed() -> None:
    gap = build_gap(5)
    seen = scan(bytes(gap), parse_filter(""), start=0, end=9)
    assert (seen.matches, seen.record_count, seen.consumed) == ([], 0, len(gap))
