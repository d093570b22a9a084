"""Producer sequences: repeated, in order, out of order, fenced, wrapped, forgotten, restored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import OutOfOrderSequence, ProducerFenced, StaleEpoch
from headrace.log.producers import Producers, SentBatch, still_stored
from headrace.records.batch import BatchHeader

pytestmark = pytest.mark.trap(25)
SPACE = 2**31
PRODUCER = 7


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = PRODUCER, at_ms: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, at_ms, at_ms, producer, epoch, sequence, count)


def marker(*, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0x30, 0, 0, 0, PRODUCER, epoch, -1, 1)


class Log:
    """As a partition uses it: check, and note what was appended."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, batch: BatchHeader) -> int:
        original = self.producers.check(batch)
        if original is not None:
            return original.base_offset
        self.producers.note(batch, self.end)
        self.end += batch.last_offset_delta + 1
        return self.end - batch.last_offset_delta - 1


@given(st.integers(0, SPACE - 1), st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.data())
def test_last_five_batches_are_recognised_wherever_the_sequence_begins(
    first: int, counts: list[int], data: st.DataObject
) -> None:
    log = Log()
    sent: list[tuple[BatchHeader, int]] = []
    sequence = first
    for count in counts:
        batch = header(sequence, count)
        sent.append((batch, log.append(batch)))
        sequence = (sequence + count) % SPACE
        again, offset = data.draw(st.sampled_from(sent[-5:]))
        assert log.append(again) == offset
    assert log.end == sum(counts)
    for batch, _ in sent[:-5]:
        with pytest.raises(OutOfOrderSequence):
            log.append(batch)


@pytest.mark.parametrize("first", [0, 100, SPACE - 3, SPACE - 1])
@pytest.mark.parametrize("skipped", [1, 2, SPACE // 2, SPACE - 10])
def test_gap_is_out_of_order(first: int, skipped: int) -> None:
    log = Log()
    log.append(header(first, 2))
    with pytest.raises(OutOfOrderSequence):
        log.append(header((first + 2 + skipped) % SPACE))
    assert log.append(header((first + 2) % SPACE)) == 2


def test_batch_may_lie_across_the_end_of_the_sequence_space() -> None:
    log = Log()
    assert log.append(header(SPACE - 2, 5)) == 0
    assert log.append(header(SPACE - 2, 5)) == 0
    assert log.append(header(3)) == 5
    producer = dict(log.producers.items())[PRODUCER]
    assert list(producer.batches) == [SentBatch(SPACE - 2, 2, 0, 5), SentBatch(3, 3, 5, 6)]


def test_same_start_and_another_length_is_no_repetition() -> None:
    log = Log()
    log.append(header(0, 3))
    for count in (1, 2, 4):
        with pytest.raises(OutOfOrderSequence):
            log.append(header(0, count))


def test_unknown_producer_begins_anywhere() -> None:
    log = Log()
    assert log.append(header(4711)) == 0
    with pytest.raises(OutOfOrderSequence):
        log.append(header(0))


def test_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    log = Log()
    log.append(header(0, 10))
    with pytest.raises(OutOfOrderSequence):
        log.append(header(10, epoch=1))
    assert log.append(header(0, 10, epoch=1)) == 10
    with pytest.raises(ProducerFenced):
        log.append(header(10))
    with pytest.raises(ProducerFenced):
        log.append(header(0, 10))
    with pytest.raises(ProducerFenced):
        log.producers.check_epoch(PRODUCER, 0)
    log.producers.check_epoch(PRODUCER, 1)
    log.producers.check_epoch(99, 0)


def test_marker_of_a_former_coordinator_is_refused() -> None:
    log = Log()
    log.append(header(0))
    log.producers.note(marker(), 1)
    log.producers.note_marker(PRODUCER, 5)
    log.producers.check_coordinator(PRODUCER, 5)
    log.producers.check_coordinator(PRODUCER, 6)
    with pytest.raises(StaleEpoch):
        log.producers.check_coordinator(PRODUCER, 4)


def test_marker_with_a_newer_epoch_fences_without_a_batch() -> None:
    log = Log()
    log.append(header(0, 2))
    log.producers.note(marker(epoch=3), 2)
    with pytest.raises(ProducerFenced):
        log.append(header(2))
    # As in Kafka: a marker has begun the epoch, and no batch of it is here.
    with pytest.raises(OutOfOrderSequence):
        log.append(header(5, epoch=3))
    assert log.append(header(0, epoch=3)) == 2


def test_producer_known_by_its_marker_alone_begins_at_zero() -> None:
    """Its batch was refused and its transaction ended without one: the next one is its first."""
    log = Log()
    log.producers.note(marker(), 0)
    restored = Producers()
    restored.restore(log.producers.snapshot())
    for producers in (log.producers, restored):
        with pytest.raises(OutOfOrderSequence):
            producers.check(header(1))
        assert producers.check(header(0)) is None


def test_producer_whose_batches_are_lost_goes_on_from_any_sequence() -> None:
    """Also where its epoch began with a marker: that it has written since is known."""
    log = Log()
    log.producers.note(marker(), 0)
    log.append(header(0, 2))
    restored = Producers()
    restored.restore(still_stored(log.producers.snapshot(), 0))
    assert restored.check(header(2)) is None


def test_marker_of_the_same_epoch_leaves_the_sequence_alone() -> None:
    log = Log()
    log.append(header(0, 2))
    log.producers.note(marker(), 2)
    log.end = 3
    assert log.append(header(0, 2)) == 0
    assert log.append(header(2)) == 3


def test_silent_producers_are_forgotten_unless_they_have_something_open() -> None:
    producers = Producers()
    for number in range(4):
        producers.note(header(0, producer=number), number, now_ms=(number + 1) * 1000)
    assert producers.expire(now_ms=4000, silent_ms=500, keep=frozenset({1})) == 2
    assert sorted(producer for producer, _ in producers.items()) == [1, 3]
    assert producers.check(header(500, producer=0)) is None


def test_silence_is_by_our_clock_and_not_by_what_the_records_say() -> None:
    """A producer that writes the records of years ago is not silent."""
    producers = Producers()
    producers.note(header(0, at_ms=1000), 0, now_ms=10**12)
    assert producers.expire(now_ms=10**12 + 1, silent_ms=500, keep=frozenset()) == 0
    assert producers.check(header(0)) is not None
    assert producers.expire(now_ms=10**12 + 501, silent_ms=500, keep=frozenset()) == 1


def test_producer_of_an_earlier_life_is_given_its_time_anew() -> None:
    producers = Producers()
    producers.note(header(0), 0)
    assert producers.expire(now_ms=10**12, silent_ms=500, keep=frozenset()) == 0
    restored = Producers()
    restored.restore(producers.snapshot())
    assert restored.expire(now_ms=10**12 + 500, silent_ms=500, keep=frozenset()) == 0
    assert restored.expire(now_ms=10**12 + 501, silent_ms=500, keep=frozenset()) == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 6), st.integers(1, 3)), min_size=1, max_size=40
    )
)
def test_restored_memory_decides_as_the_original_does(steps: list[tuple[int, int, int, int]]) -> None:
    """Any mixture of producers, epochs and sequences, right and wrong; a snapshot is restored after every step."""
    log = Log()
    for producer, epoch, sequence, count in steps:
        batch = header(sequence, count, epoch=epoch, producer=producer)
        copy = Producers()
        copy.restore(log.producers.snapshot())
        assert decision(copy, batch) == decision(log.producers, batch)
        try:
            log.append(batch)
        except (OutOfOrderSequence, ProducerFenced):
            continue
    assert len(log.producers) <= 4
    for _, known in log.producers.items():
        assert len(known.batches) <= 5


def decision(producers: Producers, batch: BatchHeader) -> object:
    try:
        return producers.check(batch)
    except (OutOfOrderSequence, ProducerFenced) as error:
        return type(error)
