"""What a fetch brings, taken apart: the records somebody asked for, in order, and where to go on."""

import pytest
from tests.support.raw_kafka import lying_batch

from headrace.cli.kafka_fetch import TopicFetcher
from headrace.errors import CorruptBatch
from headrace.records.batch import Codec, read_header, stamp
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.wire.kafka.messages.fetch_response import AbortedTransaction, PartitionData

FETCHER = TopicFetcher("t", is_committed_only=True)


def data(*values: bytes, producer_id: int = -1) -> bytearray:
    return build_batch(
        [NewRecord(value=value) for value in values],
        now_ms=1,
        codec=Codec.GZIP,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=producer_id >= 0,
    )


def marker(producer_id: int, *, is_commit: bool) -> bytearray:
    return build_marker(is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, now_ms=1)


def fetched(*batches: bytearray, start: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> PartitionData:
    """The batches from offset `start` on; `aborted` are producers and the first offsets of their transactions."""
    for batch in batches:
        stamp(batch, start, 0)
        start = read_header(batch).end_offset
    return PartitionData(
        high_watermark=start,
        last_stable_offset=start,
        aborted_transactions=[AbortedTransaction(*each) for each in aborted],
        records=b"".join(map(bytes, batches)),
    )


def values(answer: PartitionData, position: int = 0) -> list[bytes | None]:
    return [record.value for _, record in FETCHER.records_of(answer, position) if record is not None]


def test_records_before_the_position_are_left_out_and_the_end_of_a_batch_is_told() -> None:
    answer = fetched(data(b"a", b"b"), data(b"c", b"d"), start=10)
    found = [(go_on, None if record is None else record.value) for go_on, record in FETCHER.records_of(answer, 13)]
    assert found == [(14, b"d"), (14, None)]


def test_aborted_transactions_are_left_out_and_committed_ones_of_the_same_producer_are_not() -> None:
    answer = fetched(
        *(data(b"aborted", producer_id=7), data(b"other", producer_id=8), data(b"plain")),
        *(marker(7, is_commit=False), data(b"kept", producer_id=7), marker(7, is_commit=True)),
        *(data(b"again", producer_id=7), marker(7, is_commit=False)),
        aborted=((7, 6), (7, 0)),
    )
    assert values(answer) == [b"other", b"plain", b"kept"]


def test_a_transaction_whose_end_alone_is_fetched_hides_nothing_behind_it() -> None:
    answer = fetched(marker(7, is_commit=False), data(b"kept", producer_id=7), start=5, aborted=((7, 2),))
    assert values(answer, 5) == [b"kept"]


def test_a_batch_that_unpacks_to_nothing_is_named_with_where_to_go_on() -> None:
    answer = fetched(data(b"a"), lying_batch(b"", claimed_count=3))
    found = FETCHER.records_of(answer, 0)
    assert [go_on for go_on, _ in (next(found), next(found))] == [1, 1]
    with pytest.raises(CorruptBatch, match=r"t partition 0: the batch of offsets 1 to 3 .* begins at offset 4"):
        list(found)
