"""Objects of version 2: what their footers say of producers and transactions is what the batches say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Corrupted
from headrace.ids import Partition, TopicId
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.tier.format.object import (
    ENTRY_SIZE,
    Kind,
    ObjectBuilder,
    decode_footer,
    decode_run_states,
    footer_size,
)
from headrace.tier.format.run_state import (
    ABORTED,
    BEGUN,
    COMMITTED,
    ProducerRow,
    RunState,
    SentRow,
    TransactionRow,
    decode_states,
    encode_state,
    state_of,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "tier"
TOPIC = TopicId(bytes(range(16)))
LONG = 1 << 20


def batch(offset: int, sequence: int, *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> bytes:
    made = build_batch(
        [NewRecord(value=b"%d" % sequence)],
        now_ms=1_700_000_000_000 + offset,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return offset.to_bytes(8, "big") + bytes(made[8:])


def marker(offset: int, *, producer: int = 7, commit: bool = True, coordinator_epoch: int = 3) -> bytes:
    made = build_marker(
        is_commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=coordinator_epoch, now_ms=5
    )
    return offset.to_bytes(8, "big") + bytes(made[8:])


def build_sample() -> bytes:
    builder = ObjectBuilder(Kind.STREAM_SET, has_states=True)
    builder.add(TOPIC, Partition(0), [batch(offset, offset) for offset in range(7)])
    builder.add(
        TOPIC,
        Partition(1),
        [
            batch(10, 0, producer=8, transactional=True),
            batch(11, 1, producer=8, transactional=True),
            marker(12, producer=8),
            batch(13, 2, producer=8, transactional=True),
            marker(14, producer=8, commit=False, coordinator_epoch=4),
        ],
    )
    builder.add(TOPIC, Partition(2), [batch(0, -1, producer=-1, epoch=-1)])
    return b"".join(builder.chunks())


def test_a_run_tells_the_last_batches_of_each_producer() -> None:
    told, _, nobody = decode_run_states(build_sample())
    assert told == RunState(
        (
            ProducerRow(
                producer_id=7,
                epoch=0,
                coordinator_epoch=-1,
                last_timestamp_ms=1_700_000_000_006,
                sent=tuple(SentRow(sequence, 0, sequence) for sequence in range(2, 7)),
            ),
        )
    )
    assert nobody == RunState()


def test_a_run_tells_where_transactions_begin_and_end() -> None:
    _, told, _ = decode_run_states(build_sample())
    assert told is not None
    assert told.transactions == (
        TransactionRow(8, 10, BEGUN),
        TransactionRow(8, 12, COMMITTED),
        TransactionRow(8, 13, BEGUN),
        TransactionRow(8, 14, ABORTED),
    )
    assert told.producers[0].coordinator_epoch == 4


def test_a_newer_epoch_forgets_the_batches_of_the_one_before() -> None:
    told = state_of([batch(0, 0), batch(1, 1), batch(2, 0, epoch=1)])
    assert (told.producers[0].epoch, told.producers[0].sent) == (1, (SentRow(0, 0, 2),))


def test_readers_of_records_see_no_difference() -> None:
    data = build_sample()
    plain = ObjectBuilder(Kind.STREAM_SET)
    for run in decode_footer(data).runs:
        plain.add(run.topic_id, run.partition, [data[run.position : run.position + run.length]])
    assert decode_footer(b"".join(plain.chunks())) == decode_footer(data)
    assert decode_run_states(b"".join(plain.chunks())) == (None, None, None)


def test_the_builder_knows_the_size_of_what_it_builds() -> None:
    builder = ObjectBuilder(Kind.STREAM, has_states=True)
    builder.add(TOPIC, Partition(0), [batch(0, 0)])
    data = b"".join(builder.chunks())
    assert (builder.size, builder.footer_size) == (len(data), footer_size(data))


def test_rows_that_would_outweigh_their_run_are_left_out() -> None:
    builder = ObjectBuilder(Kind.STREAM, has_states=True)
    builder.add(TOPIC, Partition(0), [batch(offset, 0, producer=offset) for offset in range(200)])
    data = b"".join(builder.chunks())
    (run,) = decode_footer(data).runs
    assert decode_run_states(data) == (None,)
    assert footer_size(data) < 2 * ENTRY_SIZE
    assert len(state_of([data[run.position : run.position + run.length]]).producers) == 200


def test_golden_object_of_version_2() -> None:
    golden = (GOLDEN / "object-v2.hro").read_bytes()
    assert golden == build_sample()
    assert [run.record_count for run in decode_footer(golden).runs] == [7, 5, 1]


rows = st.builds(
    RunState,
    st.lists(
        st.builds(
            ProducerRow,
            producer_id=st.integers(0, 2**63 - 1),
            epoch=st.integers(0, 2**15 - 1),
            coordinator_epoch=st.integers(-1, 2**31 - 1),
            last_timestamp_ms=st.integers(-1, 2**62),
            sent=st.lists(
                st.builds(SentRow, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
                max_size=5,
            ).map(tuple),
        ),
        max_size=4,
    ).map(tuple),
    st.lists(
        st.builds(TransactionRow, st.integers(0, 2**62), st.integers(0, 2**62), st.sampled_from([0, 1, 2])), max_size=4
    ).map(tuple),
)


@given(states=st.lists(rows, max_size=4))
def test_rows_come_back_as_they_went_and_every_cut_is_noticed(states: list[RunState]) -> None:
    data = b"".join(encode_state(each, LONG) for each in states)
    assert decode_states(data, len(states)) == tuple(states)
    for length in range(len(data)):
        with pytest.raises(Corrupted):
            decode_states(data[:length], len(states))
    with pytest.raises(Corrupted):
        decode_states(data + b"\0", len(states))
