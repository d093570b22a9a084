"""Which partitions share an object, and which small objects are merged."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.tier.format.object import Kind
from headrace.tier.merging import small_objects, stretches
from headrace.tier.packing import Waiting, pack, pack_full
from headrace.tier.segments import LiveSegment, SegmentTable

TOPIC = bytes(16)


@given(sizes=st.lists(st.integers(1, 200), max_size=60), count_max=st.integers(1, 10))
def test_every_partition_is_packed_once_within_the_bounds(sizes: list[int], count_max: int) -> None:
    waiting = [Waiting(number, size) for number, size in enumerate(sizes)]
    parcels = pack(waiting, stream_bytes=100, object_bytes=300, count_max=count_max)
    packed = [number for parcel in parcels for number in parcel.partitions]
    assert sorted(packed) == list(range(len(sizes)))
    for parcel in parcels:
        assert len(parcel.partitions) <= count_max
        total = sum(sizes[number] for number in parcel.partitions)
        assert len(parcel.partitions) == 1 or total <= 300
        assert all(sizes[number] < 100 for number in parcel.partitions) or parcel.kind is Kind.STREAM


@given(sizes=st.lists(st.integers(1, 200), max_size=60), count_max=st.integers(2, 10))
def test_only_full_objects_are_made_while_more_is_coming(sizes: list[int], count_max: int) -> None:
    waiting = [Waiting(number, size) for number, size in enumerate(sizes)]
    packed = pack_full(waiting, stream_bytes=100, object_bytes=300, count_max=count_max)
    taken = [number for parcel in packed.parcels for number in parcel.partitions]
    assert len(taken) == len(set(taken))
    totals = [sum(sizes[number] for number in parcel.partitions) for parcel in packed.parcels]
    for parcel, total in zip(packed.parcels, totals, strict=True):
        is_stream = parcel.kind is Kind.STREAM and total >= 100
        assert is_stream or 300 <= total < 400 or len(parcel.partitions) == count_max
    assert packed.left_bytes == sum(sizes) - sum(min(total, 300) for total in totals)
    assert sum(sizes[number] for number in set(range(len(sizes))) - set(taken)) < 300


def test_what_was_left_is_taken_first_the_next_time() -> None:
    left = pack_full([Waiting(n, 90) for n in range(4)], stream_bytes=100, object_bytes=300, count_max=10)
    assert (left.left_bytes, [len(each.partitions) for each in left.parcels]) == (60, [4])
    again = pack_full(
        [Waiting(0, 10), Waiting(1, 80), Waiting(2, 90), Waiting(3, 99), Waiting(4, 85)],
        stream_bytes=100,
        object_bytes=300,
        count_max=10,
    )
    assert again.parcels[0].partitions == (3, 2, 4, 1)


def test_quiet_partitions_cost_one_object_however_many_they_are() -> None:
    waiting = [Waiting(number, 100) for number in range(1000)]
    assert len(pack(waiting, stream_bytes=8 << 20, object_bytes=64 << 20, count_max=50_000)) == 1


def live(base: int, end: int, object_id: int, size: int = 10) -> LiveSegment:
    return LiveSegment(
        base_offset=base,
        end_offset=end,
        object_id=object_id,
        key=f"{object_id}",
        object_size=size,
        position=0,
        length=1,
        record_count=end - base,
        max_timestamp_ms=0,
        leader_epoch=0,
        committed_ms=0,
        revision=1,
    )


def test_oldest_small_objects_are_chosen_up_to_the_target() -> None:
    table = SegmentTable()
    for number, size in enumerate([10, 500, 20, 30, 40], start=1):
        table.add((TOPIC, 0), live(number, number + 1, number, size))
    assert small_objects(table, source_bytes=100, target_bytes=65, count_max=10) == [1, 3, 4]
    assert small_objects(table, source_bytes=100, target_bytes=1000, count_max=2) == [1, 3]
    assert small_objects(table, source_bytes=100, target_bytes=1000, count_max=9, excluded={"3"}) == [1, 4, 5]


def test_only_neighbours_become_one() -> None:
    table = SegmentTable()
    for number in range(4):
        table.add((TOPIC, 0), live(number, number + 1, number))
    table.add((TOPIC, 1), live(0, 1, 3))
    chosen = {each.place: [s.base_offset for s in each.segments] for each in stretches(table, [0, 1, 3])}
    assert chosen == {(TOPIC, 0): [0, 1], (TOPIC, 1): [0]}


def test_object_is_in_use_as_long_as_any_partition_has_a_segment_in_it() -> None:
    table = SegmentTable()
    one, other = live(0, 1, 7), live(0, 1, 7)
    table.add((TOPIC, 0), one)
    table.add((TOPIC, 1), other)
    table.remove((TOPIC, 0), [one])
    assert table.is_referenced(7)
    assert list(table.places_of(7)) == [(TOPIC, 1)]
    table.forget_topic(TOPIC)
    assert not table.is_referenced(7)
    assert list(table) == []


def test_an_object_that_goes_while_all_are_walked_is_left_out() -> None:
    """Who lists them on the console leaves the loop to others in between."""
    table = SegmentTable()
    segments = [live(number, number + 1, number) for number in range(3)]
    for segment in segments:
        table.add((TOPIC, 0), segment)
    walk = table.objects()
    assert next(walk)[0] == 0
    table.remove((TOPIC, 0), segments[1:2])
    assert [object_id for object_id, _ in walk] == [2]
