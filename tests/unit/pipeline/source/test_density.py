"""Limits count records: offsets that were lost with a disk cost nothing."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.source.density import limit_offsets, offset_behind, records_between, waiting_count
from headrace.pipeline.source.log import PartitionView, View
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.planning import Layout, ObjectRead, Slice, _cut_slices, plan_tasks
from headrace.tier.format.inventory import PartitionState
from headrace.tier.format.manifest import Segment
from headrace.tier.format.object import Footer

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FAR = 1 << 28
GAP = [(0, 100, 100), (100, FAR, 0), (FAR, FAR + 50, 50)]
"""A hundred records, what a lost disk has left, fifty records."""


def segment(base_offset: int, end_offset: int, record_count: int) -> Segment:
    return Segment(
        topic_id="t",
        partition=0,
        base_offset=base_offset,
        end_offset=end_offset,
        key=f"{base_offset}",
        object_size=0,
        footer_size=0,
        position=0,
        length=0,
        record_count=record_count,
        max_timestamp_ms=-1 if not record_count else 5,
        leader_epoch=0,
        last_stable_offset=end_offset,
    )


def stored(segments: Sequence[tuple[int, int, int]], end: int) -> PartitionView:
    state = PartitionState(topic_id="t", partition=0, segments=tuple(segment(*each) for each in segments))
    return PartitionView(place=A0, topic_id="t", log_start=0, end=end, stored=state)


def view_of(ends: Mapping[TopicPartition, int]) -> View:
    """Partitions of which only a broker knows."""
    return {
        place: PartitionView(place=place, topic_id=place.topic, log_start=0, end=end) for place, end in ends.items()
    }


def test_lost_offsets_are_no_records() -> None:
    partition = stored(GAP, FAR + 60)
    assert records_between(partition, 0, FAR + 60) == 160  # Ten are not uploaded yet.
    assert records_between(partition, 100, FAR) == 0
    assert records_between(partition, 40, FAR + 10) == 70


def test_a_limit_steps_over_lost_offsets() -> None:
    partition = stored(GAP, FAR + 60)
    assert offset_behind(partition, 0, FAR + 60, 40) == 40
    assert offset_behind(partition, 0, FAR + 60, 100) == FAR
    assert offset_behind(partition, 100, FAR + 60, 1) == FAR + 1
    assert offset_behind(partition, 100, FAR, 1) == FAR
    assert offset_behind(partition, 0, FAR + 60, 155) == FAR + 55
    view = {A0: partition}
    assert waiting_count({A0: 0}, {A0: FAR + 60}, view) == 160
    steps, position = 0, 0
    while position < FAR + 60:
        position = limit_offsets({A0: position}, {A0: FAR + 60}, view, 50)[A0]
        steps += 1
    assert steps <= 5


def test_a_segment_with_a_gap_inside_is_passed_in_its_share_of_steps() -> None:
    """Merged with others, it says how many records it has, and not where."""
    partition = stored([(0, FAR, 1000)], FAR)
    steps, position = 0, 0
    while position < FAR:
        position = offset_behind(partition, position, FAR, 100)
        steps += 1
    assert steps <= 11


def test_tasks_share_records_and_not_offsets() -> None:
    piece = Slice(partition=stored(GAP, FAR + 50), start=0, end=FAR + 50)
    cut = _cut_slices([piece], Layout(partitions_min=3))
    assert [records_between(each.partition, each.start, each.end) for each in cut] == [50, 50, 50]
    assert (cut[0].start, cut[-1].end) == (0, FAR + 50)
    assert all(before.end == after.start for before, after in pairwise(cut))
    assert len(_cut_slices([piece], Layout(records_per_partition_max=100))) == 2
    empty = Slice(partition=piece.partition, start=100, end=FAR)
    assert len(_cut_slices([empty], Layout(partitions_min=3, records_per_partition_max=1))) == 1


def test_nothing_is_fetched_for_lost_offsets() -> None:
    partition = stored(GAP, FAR + 50)
    (task,) = plan_tasks([Slice(partition=partition, start=0, end=FAR + 50)], lambda _: never(), has_broker=False)
    reads = [read.bytes for read in task if isinstance(read, ObjectRead)]
    assert [(each.start, each.end) for each in reads] == [(0, 100), (FAR, FAR + 50)]


def never() -> Footer:
    raise AssertionError("a footer was fetched")


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=6),
    st.integers(0, 40),
    st.integers(1, 30),
)
def test_a_limited_read_gets_on_and_ends(spans: list[tuple[int, int]], tail: int, share: int) -> None:
    segments, end = [], 0
    for span, count in spans:
        segments.append((end, end + span, min(span, count)))
        end += span
    partition = stored(segments, end + tail)
    position = steps = 0
    while position < partition.end:
        following = offset_behind(partition, position, partition.end, share)
        assert position < following <= partition.end
        position = following
        steps += 1
    # Twice: a step of a record in a thin segment is cut down to whole offsets.
    assert steps <= 2 * records_between(partition, 0, partition.end) // share + len(spans) + 2


def test_a_limit_is_shared_by_what_is_waiting() -> None:
    start, end = {A0: 0, A1: 0, B0: 10}, {A0: 900, A1: 100, B0: 10}
    assert limit_offsets(start, end, view_of(end), 100) == {A0: 90, A1: 10, B0: 10}


@given(
    waiting=st.lists(st.integers(0, 10_000), min_size=1, max_size=20),
    records_max=st.integers(1, 20_000),
)
def test_a_limited_query_always_gets_on_and_never_overshoots_by_more_than_one_each(
    waiting: list[int], records_max: int
) -> None:
    start = {TopicPartition("t", i): 100 * i for i in range(len(waiting))}
    end = {place: start[place] + waiting[place.partition] for place in start}
    limited = limit_offsets(start, end, view_of(end), records_max)
    taken = {place: limited[place] - start[place] for place in start}
    assert all(0 <= taken[place] <= waiting[place.partition] for place in start)
    assert all(taken[place] > 0 for place in start if waiting[place.partition])
    assert sum(taken.values()) <= max(records_max, len(waiting)) + len(waiting)
