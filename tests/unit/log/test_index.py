"""The index of the tail against a list of batches that is searched from front to back."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.index import TailIndex


class Row(NamedTuple):
    base: int
    end: int
    position: int
    timestamp: int


@st.composite
def tails(draw: st.DrawFn) -> list[Row]:
    """Batches in order, sometimes with a gap of offsets between them."""
    rows = []
    offset, position = draw(st.integers(0, 50)), 0
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        count = draw(st.integers(1, 5))
        rows.append(Row(offset, offset + count, position, draw(st.integers(0, 20))))
        offset += count
        position += draw(st.integers(61, 300))
    return rows


def index_of(rows: list[Row]) -> TailIndex:
    index = TailIndex()
    for row in rows:
        index.add(row.base, row.end, row.position, row.position * 2, row.timestamp)
    return index


@given(tails(), st.integers(0, 120))
def test_offset_finds_the_batch_that_holds_it_or_the_next(rows: list[Row], offset: int) -> None:
    expected = next((place for place, row in enumerate(rows) if row.end > offset), len(rows))
    assert index_of(rows).find(offset) == expected


@given(tails(), st.integers(0, 120))
def test_end_leaves_out_batches_that_are_not_wholly_below_it(rows: list[Row], end: int) -> None:
    assert index_of(rows).find_end(end) == sum(row.end <= end for row in rows)


@given(tails(), st.integers(0, 4000))
def test_position_finds_the_first_batch_at_or_behind_it(rows: list[Row], position: int) -> None:
    expected = next((place for place, row in enumerate(rows) if row.position >= position), len(rows))
    assert index_of(rows).find_position(position) == expected


@given(tails(), st.integers(-1, 21), st.integers(0, 12))
def test_time_finds_the_first_batch_with_a_record_at_or_after_it(rows: list[Row], timestamp: int, first: int) -> None:
    places = range(min(first, len(rows)), len(rows))
    expected = next((place for place in places if rows[place].timestamp >= timestamp), len(rows))
    assert index_of(rows).find_time(timestamp, min(first, len(rows))) == expected


@given(tails(), st.integers(-3, 15), st.integers(0, 120))
def test_front_is_dropped_and_the_rest_is_found_as_before(rows: list[Row], count: int, offset: int) -> None:
    index = index_of(rows)
    index.drop_front(count)
    left = rows[max(count, 0) :]
    assert len(index) == len(left)
    assert list(index.offsets) == [row.base for row in left]
    assert list(index.lsns) == [row.position * 2 for row in left]
    assert index.find(offset) == next((place for place, row in enumerate(left) if row.end > offset), len(left))
