"""Data objects: what goes in comes out, damage is noticed, newer versions are refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tier_batches import raw_batch

from headrace.errors import Corrupted, NewerFormat
from headrace.ids import Partition, TopicId
from headrace.tier.format import framing
from headrace.tier.format.object import (
    MAGIC,
    RUN_BYTES_MAX,
    Kind,
    ObjectBuilder,
    RunFlags,
    check_run,
    decode_footer,
    footer_size,
    iter_batches,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "tier"
TOPIC = TopicId(bytes(range(16)))
OTHER = TopicId(bytes(range(16, 32)))


def build_sample() -> bytes:
    builder = ObjectBuilder(Kind.STREAM_SET)
    builder.add(
        TOPIC, Partition(0), [raw_batch(0, 3), raw_batch(3, 2, attributes=4, max_timestamp_ms=1_700_000_000_500)]
    )
    builder.add(
        TOPIC, Partition(7), [raw_batch(100, 1, attributes=0x10, producer_id=9), raw_batch(101, 1, attributes=0x30)]
    )
    builder.add(OTHER, Partition(0), [raw_batch(5, 1, leader_epoch=4)])
    return b"".join(builder.chunks())


def test_footer_describes_every_partition() -> None:
    data = build_sample()
    footer = decode_footer(data)
    assert footer.kind is Kind.STREAM_SET
    first, transactional, other = footer.runs
    assert (first.topic_id, first.partition, first.base_offset, first.last_offset) == (TOPIC, 0, 0, 4)
    assert (first.record_count, first.codecs, first.flags) == (5, 0b10001, RunFlags(0))
    assert first.max_timestamp_ms == 1_700_000_000_500
    assert transactional.flags == RunFlags.CONTROL | RunFlags.TRANSACTIONAL
    assert other.leader_epoch == 4
    assert footer.runs_of(OTHER, Partition(0)) == [other]


def test_batches_come_back_byte_for_byte() -> None:
    batches = [raw_batch(offset, payload=bytes([offset]) * 50) for offset in range(20)]
    builder = ObjectBuilder(Kind.STREAM)
    builder.add(TOPIC, Partition(0), batches)
    data = b"".join(builder.chunks())
    assert len(data) == builder.size
    (run,) = decode_footer(data).runs
    piece = data[run.position : run.position + run.length]
    check_run(run, piece)
    assert [bytes(batch) for batch in iter_batches(piece)] == batches


@given(sizes=st.lists(st.integers(1, RUN_BYTES_MAX), min_size=1, max_size=8))
def test_runs_cover_the_body_without_gaps(sizes: list[int]) -> None:
    builder = ObjectBuilder(Kind.STREAM)
    runs = builder.add(TOPIC, Partition(0), [raw_batch(i, payload=bytes(size)) for i, size in enumerate(sizes)])
    position, offset = 0, 0
    for run in runs:
        assert (run.position, run.base_offset) == (position, offset)
        position, offset = run.position + run.length, run.end_offset
    assert (position, offset) == (builder.body_size, len(sizes))
    assert all(run.length < 2 * RUN_BYTES_MAX + 100 for run in runs)


def test_footer_is_found_from_the_tail_alone() -> None:
    data = build_sample()
    size = footer_size(data[-framing.TAIL_SIZE :])
    assert decode_footer(data[-size:]) == decode_footer(data)


def test_every_truncation_is_noticed() -> None:
    data = build_sample()
    size = footer_size(data)
    for length in range(size):
        with pytest.raises(Corrupted):
            decode_footer(data[len(data) - length :] if length else b"")
    for cut in range(1, size + 1):
        with pytest.raises(Corrupted):
            decode_footer(data[:-cut])


def test_a_flipped_bit_of_the_version_is_damage_and_no_newer_headrace() -> None:
    data = build_sample()
    for bit in range(framing.TAIL_SIZE * 8):
        damaged = bytearray(data)
        damaged[-1 - bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupted):
            decode_footer(bytes(damaged))


@given(bit=st.integers(0), data=st.just(build_sample()))
def test_every_flipped_bit_is_noticed(bit: int, data: bytes) -> None:
    damaged = bytearray(data)
    bit %= len(damaged) * 8
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupted):
        check_whole(bytes(damaged))


def check_whole(data: bytes) -> None:
    for run in decode_footer(data).runs:
        check_run(run, data[run.position : run.position + run.length])


def test_newer_version_is_refused_by_name() -> None:
    newer = framing.seal(b"", item_count=0, version=3, kind=0, magic=MAGIC)
    with pytest.raises(NewerFormat, match="version 3"):
        decode_footer(newer)


def test_batches_that_do_not_fill_their_run_are_corrupt() -> None:
    batch = raw_batch(0)
    with pytest.raises(Corrupted):
        list(iter_batches(batch + b"\0\0\0"))
    with pytest.raises(Corrupted):
        list(iter_batches(batch[:-1]))
    with pytest.raises(Corrupted):
        list(iter_batches(batch[:8] + (-5).to_bytes(4, "big", signed=True) + batch[12:]))


def test_golden_object_of_version_1() -> None:
    golden = (GOLDEN / "object-v1.hro").read_bytes()
    assert golden == build_sample()
    assert [run.record_count for run in decode_footer(golden).runs] == [5, 2, 1]


@given(sizes=st.lists(st.integers(0, 700_000), min_size=1, max_size=8), cut=st.integers(1, 4))
def test_a_stretch_is_indexed_like_its_batches_one_by_one(sizes: list[int], cut: int) -> None:
    batches = [bytes(raw_batch(offset, payload=bytes(size))) for offset, size in enumerate(sizes)]
    singly, together = ObjectBuilder(Kind.STREAM), ObjectBuilder(Kind.STREAM)
    runs = singly.add(TOPIC, Partition(0), batches)
    together.begin(TOPIC, Partition(0))
    for start in range(0, len(batches), cut):
        together.extend_stretch(b"".join(batches[start : start + cut]))
    assert together.finish() == runs
    assert b"".join(together.chunks()) == b"".join(singly.chunks())
