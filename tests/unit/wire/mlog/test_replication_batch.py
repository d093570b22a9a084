"""The replication batch survives round trips and cuts; the strict decoder refuses what the lenient one forgives."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch
from headrace.wire.mlog.replication_batch import (
    HEADER,
    KAFKA_BATCHES,
    ReplicationRecord,
    decode_replication_batch,
    decode_replication_batch_strictly,
    encode_replication_batch,
)

records = st.lists(
    st.tuples(st.integers(min_value=0, max_value=2**30), st.binary(max_size=50)), min_size=1, max_size=10
).map(lambda pairs: [ReplicationRecord(*pair) for pair in sorted(pairs)])


@given(records=records)
def test_batches_round_trip(records: list[ReplicationRecord]) -> None:
    encoded = encode_replication_batch(records)
    assert encoded is not None
    assert decode_replication_batch(encoded) == records
    assert decode_replication_batch_strictly(encoded).records == records


@given(records=records, cut=st.integers(min_value=1, max_value=200))
def test_a_cut_batch_is_an_unexpected_end(records: list[ReplicationRecord], cut: int) -> None:
    encoded = encode_replication_batch(records)
    assert encoded is not None
    with pytest.raises(EOFError):
        decode_replication_batch(encoded[: max(0, len(encoded) - cut)])


def sealed(section: bytes, *, base: int = 0, delta: int = 0) -> bytes:
    return HEADER.pack(base, len(section), 0, zlib.crc32(section), 0, delta) + section


@pytest.mark.parametrize("size", [-1, 100])
def test_a_bad_inner_size_ends_the_lenient_and_fails_the_strict(size: int) -> None:
    good = struct.pack(">qi", 0, 2) + b"ok"
    batch = sealed(good + struct.pack(">qi", 1, size) + b"xx", delta=1)
    assert decode_replication_batch(batch) == [ReplicationRecord(0, b"ok")]
    with pytest.raises(CorruptBatch):
        decode_replication_batch_strictly(batch)


def test_the_strict_decoder_compares_records_with_the_header() -> None:
    section = struct.pack(">qi", 7, 2) + b"ok"
    assert decode_replication_batch(sealed(section, base=3, delta=9)) == [ReplicationRecord(7, b"ok")]
    with pytest.raises(CorruptBatch):
        decode_replication_batch_strictly(sealed(section, base=3, delta=9))
    with pytest.raises(CorruptBatch):
        decode_replication_batch_strictly(sealed(b""))


def test_epoch_and_attributes_travel_between_nodes() -> None:
    encoded = encode_replication_batch([ReplicationRecord(1, b"x")], leader_epoch=9, attributes=KAFKA_BATCHES)
    assert encoded is not None
    batch = decode_replication_batch_strictly(encoded)
    assert (batch.leader_epoch, batch.attributes) == (9, KAFKA_BATCHES)


@pytest.mark.parametrize("epoch", [-1, 2**31])
def test_an_epoch_that_does_not_fit_is_refused(epoch: int) -> None:
    with pytest.raises(CorruptBatch):
        encode_replication_batch([ReplicationRecord(1, b"x")], leader_epoch=epoch)
