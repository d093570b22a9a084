"""Planning: every wanted record is in some range, and ranges that hold none are left out."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tier_batches import raw_batch

from headrace.errors import Invalid
from headrace.ids import BrokerEpoch, BrokerId, Partition, TopicId
from headrace.tier.format import keys
from headrace.tier.format.inventory import PartitionState
from headrace.tier.format.manifest import Segment
from headrace.tier.format.object import Kind, ObjectBuilder, decode_footer, iter_batches
from headrace.tier.format.plan import plan, segment_for_time, split

TOPIC = "00010203-0405-0607-0809-0a0b0c0d0e0f"
TOPIC_ID = TopicId(UUID(TOPIC).bytes)


def make_objects(segments: int, batches: int, *, payload: int = 400_000) -> tuple[PartitionState, dict[str, bytes]]:
    """`segments` objects of `batches` one-record batches each; record n has timestamp 1000 * n."""
    made: list[Segment] = []
    objects: dict[str, bytes] = {}
    for index in range(segments):
        base = index * batches
        builder = ObjectBuilder(Kind.STREAM)
        builder.add(
            TOPIC_ID,
            Partition(0),
            [
                raw_batch(offset, payload=bytes(payload), max_timestamp_ms=1000 * offset)
                for offset in range(base, base + batches)
            ],
        )
        key = keys.data_key(keys.ObjectId(BrokerId(1), BrokerEpoch(1), index))
        objects[key] = b"".join(builder.chunks())
        made.append(
            Segment(
                topic_id=TOPIC,
                partition=0,
                base_offset=base,
                end_offset=base + batches,
                key=key,
                object_size=builder.size,
                footer_size=builder.footer_size,
                position=0,
                length=builder.body_size,
                record_count=batches,
                max_timestamp_ms=1000 * (base + batches - 1),
                leader_epoch=1,
                last_stable_offset=base + batches,
            )
        )
    state = PartitionState(topic_id=TOPIC, partition=0, segments=tuple(made), last_stable_offset=segments * batches)
    return state, objects


STATE, OBJECTS = make_objects(4, 10)


@given(start=st.integers(0, 45), length=st.integers(0, 45), bytes_max=st.integers(1, 5_000_000))
def test_ranges_hold_exactly_the_offsets_asked_for(start: int, length: int, bytes_max: int) -> None:
    end = start + length
    found: list[int] = []
    for whole in plan(STATE, start=start, end=end):
        footer = decode_footer(OBJECTS[whole.key][whole.footer_position :])
        for piece in split(whole, footer, bytes_max=bytes_max):
            data = OBJECTS[piece.key][piece.position : piece.position + piece.length]
            offsets = [int.from_bytes(batch[:8], "big") for batch in iter_batches(data)]
            found += [offset for offset in offsets if piece.start <= offset < piece.end]
    assert found == list(range(start, min(end, 40)))


def test_offsets_outside_the_log_give_no_range() -> None:
    assert plan(STATE, start=40) == []
    assert plan(STATE, start=5, end=5) == []
    assert [planned.start for planned in plan(STATE)] == [0, 10, 20, 30]


def test_time_leaves_out_old_segments_and_runs() -> None:
    ranges = plan(STATE, since_ms=25_500)
    assert [(planned.start, planned.end) for planned in ranges] == [(20, 30), (30, 40)]
    footer = decode_footer(OBJECTS[ranges[0].key][ranges[0].footer_position :])
    pieces = split(ranges[0], footer, bytes_max=1, since_ms=25_500)
    assert pieces[0].start > 20
    assert pieces[0].start <= 26
    assert pieces[-1].end == 30


def test_log_start_and_last_stable_offset_cut() -> None:
    state = PartitionState(topic_id=TOPIC, partition=0, segments=STATE.segments, log_start=12, last_stable_offset=33)
    assert [(r.start, r.end) for r in plan(state)] == [(12, 20), (20, 30), (30, 40)]
    assert plan(state, is_read_committed=True)[-1].end == 33


def test_segment_for_time_is_the_first_that_reaches_it() -> None:
    found = segment_for_time(STATE, 19_500)
    assert found is not None
    assert found.base_offset == 20
    assert segment_for_time(STATE, 39_001) is None


def test_keys_say_what_they_are() -> None:
    object_id = keys.ObjectId(BrokerId(3), BrokerEpoch(17), 255)
    assert keys.object_id_of(keys.data_key(object_id)) == object_id
    assert keys.number_of(keys.manifest_key(42)) == 42
    assert keys.manifest_key(9) < keys.manifest_key(10)
    for foreign in ("data/00/readme.txt", "data/zz/1-2-3.hro", "data/00/00000003-00000011-0000000000ff.hro"):
        with pytest.raises(Invalid):
            keys.object_id_of(foreign)
    with pytest.raises(Invalid):
        keys.number_of("manifests/7.hrm")
