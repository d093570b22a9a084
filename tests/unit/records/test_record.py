"""Records in and out of batches, under every codec, and what damaged ones do."""

import contextlib

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptBatch, InvalidRecords, TooLarge
from headrace.records.batch import HEADER_SIZE, Codec, read_header
from headrace.records.builder import build_batch, build_marker
from headrace.records.compression import compress, decompress
from headrace.records.record import (
    NewRecord,
    Record,
    read_batch_records,
    read_records,
    read_varint,
    write_varint,
)
from headrace.records.walk import check_records

NOW_MS = 1_700_000_000_000
blobs = st.none() | st.binary(max_size=60)
new_records = st.builds(
    NewRecord,
    key=blobs,
    value=blobs,
    headers=st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2**41),
)


@given(records=st.lists(new_records, min_size=1, max_size=8), codec=st.sampled_from(Codec))
@settings(max_examples=60)
def test_what_is_built_is_read_back(records: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(records, now_ms=NOW_MS, codec=codec)
    assert list(read_records(batch)) == [
        Record(
            offset,
            NOW_MS if record.timestamp_ms is None else record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        )
        for offset, record in enumerate(records)
    ]


@pytest.mark.trap(21)
@pytest.mark.parametrize("codec", list(Codec))
def test_another_reader_agrees(codec: Codec) -> None:
    """aiokafka as the oracle: the framing of snappy and lz4 is what Kafka's clients expect."""
    records = [NewRecord(key=b"k%d" % n, value=b"value " * 50, headers=(("h", b"v"),)) for n in range(20)]
    batch = build_batch(records, now_ms=NOW_MS, codec=codec)
    found = DefaultRecordBatch(bytes(batch))
    assert found.validate_crc()
    assert [(each.offset, each.key, each.value, each.headers) for each in found] == [
        (offset, record.key, record.value, list(record.headers)) for offset, record in enumerate(records)
    ]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_zigzag(value: int) -> None:
    out = bytearray(b"before")
    write_varint(value, out)
    assert read_varint(out, 6) == (value, len(out))
    assert len(out) - 6 <= 10


def test_varint_without_end_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_varint(b"\xff" * 20, 0)


@given(data=st.data(), codec=st.sampled_from([Codec.NONE, Codec.SNAPPY, Codec.LZ4]))
@settings(max_examples=80)
def test_damaged_records_are_corrupt_and_never_anything_else(data: st.DataObject, codec: Codec) -> None:
    batch = build_batch([NewRecord(key=b"key", value=b"value" * 20, headers=(("h", b"v"),))] * 3, now_ms=0, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch, TooLarge):
        list(read_batch_records(batch, size_max=1 << 16))


def test_records_cut_short_are_corrupt_at_every_length() -> None:
    batch = build_batch([NewRecord(key=b"key", value=b"value", headers=(("h", b"v"),))], now_ms=0)
    header = read_header(batch)
    for size in range(HEADER_SIZE, len(batch)):
        with pytest.raises(CorruptBatch):
            list(read_batch_records(bytes(batch[:size]), header))


def test_control_batches_are_passed_over_by_readers_of_data() -> None:
    marker = build_marker(is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, now_ms=0)
    data = build_batch([NewRecord(value=b"x")], now_ms=0)
    assert [record.value for record in read_records(data + marker + data)] == [b"x", b"x"]


@pytest.mark.requirement("R4.63")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_without_a_key_are_named_by_their_place(codec: Codec) -> None:
    records = [NewRecord(key=key, value=b"v") for key in (None, b"", b"k", None)]
    batch = build_batch(records, now_ms=0, codec=codec)
    with pytest.raises(InvalidRecords) as raised:
        check_records(batch, read_header(batch), keys_needed=True)
    assert [index for index, _ in raised.value.failures] == [0, 3]
    keyed = build_batch([NewRecord(key=b"", value=None)], now_ms=0, codec=codec)
    check_records(keyed, read_header(keyed), keys_needed=True)


# Codecs


@given(data=st.binary(max_size=2000), times=st.integers(1, 100), codec=st.sampled_from(Codec))
@settings(max_examples=60)
def test_every_codec_gives_back_what_it_was_given(data: bytes, times: int, codec: Codec) -> None:
    plain = data * times
    assert bytes(decompress(codec, compress(codec, plain), size_max=len(plain) + 1)) == plain


@pytest.mark.trap(21)
def test_raw_snappy_is_read_beside_the_framed_one() -> None:
    plain = b"librdkafka writes it without the frame " * 100
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(plain)), size_max=1 << 20)) == plain
    framed = compress(Codec.SNAPPY, plain)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    for size in range(17, len(framed)):
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, framed[:size], size_max=1 << 20)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bomb_stops_at_the_cap(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))
    assert len(bomb) < 1_500_000
    with pytest.raises(TooLarge):
        decompress(codec, bomb, size_max=1 << 20)
    assert len(decompress(codec, bomb, size_max=20_000_000)) == 20_000_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_noise_does_not_decompress(codec: Codec) -> None:
    with pytest.raises((CorruptBatch, TooLarge)):
        decompress(codec, b"\xfe\x13 this is not compressed at all " * 3, size_max=1 << 16)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptBatch):
        compress(codec, b"x")
    with pytest.raises(CorruptBatch):
        decompress(codec, b"x", size_max=100)
