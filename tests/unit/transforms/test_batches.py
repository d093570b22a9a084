"""Whatever a module gives back, the log gets sound batches or none."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch, TransformFailed
from headrace.records.batch import HEADER_SIZE, Codec, has_valid_crc, read_header
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, read_batch_records
from headrace.transforms.batches import Payload, transform

BATCH = bytes(
    build_batch(
        [NewRecord(key=b"k%d" % number, value=b"v" * number, headers=(("h", b"x"),)) for number in range(5)],
        now_ms=1000,
        codec=Codec.LZ4,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
    )
)
CLEAR = bytes(
    build_batch(
        [NewRecord(key=b"k%d" % number, value=b"v" * number, headers=(("h", b"x"),)) for number in range(5)],
        now_ms=1000,
    )
)[HEADER_SIZE:]


@given(
    count=st.integers(0, 2**32 - 1) | st.integers(0, 6),
    base_ms=st.integers(-(2**63), 2**63 - 1) | st.just(1000),
    changes=st.lists(st.tuples(st.integers(0, len(CLEAR) - 1), st.integers(0, 255)), max_size=4),
    end=st.integers(0, len(CLEAR)) | st.just(len(CLEAR)),
)
def test_what_comes_back_is_sound_or_refused(
    count: int, base_ms: int, changes: list[tuple[int, int]], end: int
) -> None:
    made = bytearray(CLEAR[:end])
    for at, byte in changes:
        if at < end:
            made[at] = byte
    try:
        batch = transform(
            BATCH,
            lambda _: Payload(count=count, base_timestamp_ms=base_ms, records=bytes(made)),
            keys_needed=False,
        )
    except TransformFailed:
        return
    header, before = read_header(batch), read_header(BATCH)
    assert has_valid_crc(batch)
    assert (header.last_offset_delta, header.producer_id, header.base_sequence) == (4, 3, before.base_sequence)
    try:
        deltas = [each.offset for each in read_batch_records(batch)]
    except CorruptBatch:
        return  # The name of a header is no text any more: Kafka takes such records, and only readers of text mind.
    assert len(deltas) == header.record_count == count
    assert deltas == sorted(set(deltas))
    assert all(0 <= each <= 4 for each in deltas)
