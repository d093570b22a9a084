"""The partition's transaction index: what is stable, what was aborted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.transactions import AbortedTransaction, TransactionIndex, TransactionSnapshot


def ranges(found: list[AbortedTransaction]) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.first_offset, each.marker_offset) for each in found]


def test_without_transactions_everything_below_the_high_watermark_is_stable() -> None:
    index = TransactionIndex()
    index.note_batch(7, 0, False)
    assert index.last_stable_offset(10) == 10


@pytest.mark.trap(28)
def test_open_transaction_holds_back_the_stable_offset() -> None:
    index = TransactionIndex()
    index.note_batch(7, 3, True)
    index.note_batch(8, 5, True)
    index.note_batch(7, 6, True)
    assert index.last_stable_offset(10) == 3
    assert index.end(7, True, 10) is None
    assert index.last_stable_offset(11) == 5
    aborted = index.end(8, False, 11)
    assert aborted == AbortedTransaction(producer_id=8, first_offset=5, marker_offset=11, stable_offset=12)
    assert index.last_stable_offset(12) == 12
    index.check_invariants()


def test_outcome_counts_only_once_its_marker_is_below_the_high_watermark() -> None:
    index = TransactionIndex()
    index.note_batch(7, 3, True)
    index.end(7, True, 9)
    assert index.last_stable_offset(8) == 3
    assert index.last_stable_offset(9) == 3
    assert index.last_stable_offset(10) == 10


def test_repeated_marker_changes_nothing() -> None:
    index = TransactionIndex()
    index.note_batch(7, 3, True)
    assert index.end(7, False, 4) is not None
    assert index.end(7, False, 5) is None
    assert ranges(index.aborted_between(0, 100)) == [(7, 3, 4)]


@pytest.mark.trap(28)
def test_aborted_lookup_gives_only_overlapping_ranges() -> None:
    index = TransactionIndex()
    for producer_id, first, marker in [(1, 0, 5), (2, 6, 9), (3, 10, 20)]:
        index.note_batch(producer_id, first, True)
        index.end(producer_id, False, marker)
    assert ranges(index.aborted_between(0, 100)) == [(1, 0, 5), (2, 6, 9), (3, 10, 20)]
    assert ranges(index.aborted_between(6, 10)) == [(2, 6, 9)]
    assert ranges(index.aborted_between(5, 7)) == [(1, 0, 5), (2, 6, 9)]
    assert ranges(index.aborted_between(21, 30)) == []


def test_log_start_drops_old_aborts_and_bounds_the_stable_offset() -> None:
    index = TransactionIndex()
    index.note_batch(1, 0, True)
    index.end(1, False, 5)
    index.note_batch(2, 6, True)
    index.truncate_below(8)
    assert index.aborted_between(0, 100) == []
    assert index.last_stable_offset(20) == 8


steps = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["write", "commit", "abort"])), max_size=60)


@given(steps)
def test_index_agrees_with_a_reading_of_the_whole_log(script: list[tuple[int, str]]) -> None:
    index = TransactionIndex()
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for offset, (producer_id, verb) in enumerate(script):
        if verb == "write":
            index.note_batch(producer_id, offset, True)
            opened.setdefault(producer_id, offset)
        else:
            index.end(producer_id, verb == "commit", offset)
            first = opened.pop(producer_id, None)
            if first is not None and verb == "abort":
                aborted.append((producer_id, first, offset))
        index.check_invariants()
        assert index.last_stable_offset(offset + 1) == min(opened.values(), default=offset + 1)
    end = len(script)
    for start in range(0, end, 3):
        for stop in range(start + 1, end + 1, 4):
            expected = [each for each in aborted if each[1] < stop and each[2] >= start]
            assert ranges(index.aborted_between(start, stop)) == expected


@given(steps)
def test_snapshot_round_trips_through_bytes(script: list[tuple[int, str]]) -> None:
    index = TransactionIndex()
    for offset, (producer_id, verb) in enumerate(script):
        if verb == "write":
            index.note_batch(producer_id, offset, True)
        else:
            index.end(producer_id, verb == "commit", offset)
    raw = msgspec.msgpack.encode(index.snapshot())
    again = TransactionIndex.restore(msgspec.msgpack.decode(raw, type=TransactionSnapshot))
    assert again.snapshot() == index.snapshot()
    assert again.last_stable_offset(len(script)) == index.last_stable_offset(len(script))
