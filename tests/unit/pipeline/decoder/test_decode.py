"""What comes out of whole batches: codecs, CRCs, ranges, transactions, columns."""

from collections.abc import Callable

import cramjam
import pyarrow as pa
import pytest
from crc32c import crc32c

from headrace.errors import CorruptBatch
from headrace.pipeline.decoder import AbortedTransaction, Columns, Inflated, Isolation, compiled, decode, vector
from headrace.pipeline.decoder import sections as sections_module
from headrace.pipeline.decoder.arrow import Kernel
from headrace.records.batch import HEADER_SIZE, Codec, stamp, stamp_append_time
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

PRODUCER, OTHER = 7, 8


def batch_at(
    base: int, *values: bytes | None, codec: int = Codec.NONE, producer: int | None = None, time_ms: int = 1_000
) -> bytes:
    batch = build_batch(
        [NewRecord(value=value, key=b"k", timestamp_ms=time_ms) for value in values],
        now_ms=0,
        codec=codec,
        producer_id=-1 if producer is None else producer,
        is_transactional=producer is not None,
    )
    stamp(batch, base, 1)
    return bytes(batch)


def marker_at(base: int, producer: int, *, is_commit: bool) -> bytes:
    batch = build_marker(is_commit=is_commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, now_ms=1)
    stamp(batch, base, 1)
    return bytes(batch)


def with_valid_crc(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def read(data: bytes, *names: str, **options: object) -> list[dict[str, object]]:
    columns = Columns(names or ("offset", "value"))
    rows: list[dict[str, object]] = []
    for batch in decode(data, topic="orders", partition=3, columns=columns, **options):  # type: ignore[arg-type]
        assert batch.schema == columns.schema
        rows += batch.to_pylist()
    return rows


def offsets(data: bytes, **options: object) -> list[object]:
    return [row["offset"] for row in read(data, **options)]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    values = [bytes([65 + i]) * 3000 for i in range(20)]
    rows = read(batch_at(5, *values, codec=codec))
    assert [row["value"] for row in rows] == values
    assert [row["offset"] for row in rows] == list(range(5, 25))


def test_snappy_is_read_with_and_without_xerial_framing() -> None:
    plain = batch_at(0, b"a" * 100, b"b" * 100)
    packed = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:]))
    batch = bytearray(plain[:HEADER_SIZE] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= Codec.SNAPPY
    assert [row["value"] for row in read(with_valid_crc(batch))] == [b"a" * 100, b"b" * 100]


def test_all_columns_have_the_types_of_sparks_kafka_source() -> None:
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    (row,) = read(batch_at(9, b"v"), *names)
    assert {**row, "timestamp": None} == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 9,
        "timestamp": None,
        "timestampType": 0,
        "headers": None,
    }
    schema = Columns(names).schema
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("headers").type.value_field.name == "element"


def test_log_append_time_stands_for_every_record() -> None:
    batch = bytearray(batch_at(0, b"a", b"b", time_ms=1))
    stamp_append_time(batch, 77_000)
    rows = read(bytes(batch), "timestamp", "timestampType")
    assert [(row["timestamp"].timestamp(), row["timestampType"]) for row in rows] == [(77.0, 1), (77.0, 1)]  # type: ignore[attr-defined]


def test_ranges_cut_inside_batches() -> None:
    data = batch_at(0, b"a", b"b", b"c") + batch_at(3, b"d", b"e") + batch_at(5, b"f")
    assert offsets(data, first=1, end=4) == [1, 2, 3]
    assert offsets(data, first=5) == [5]
    assert offsets(data, first=6) == []


def test_a_cut_off_last_batch_is_left_out() -> None:
    whole, last = batch_at(0, b"a"), batch_at(1, b"b")
    for cut in range(len(last)):
        assert offsets(whole + last[:cut]) == [0]


@pytest.mark.parametrize("position", [21, 30, 61, -1])
def test_one_flipped_bit_is_found(position: int) -> None:
    batch = bytearray(batch_at(0, b"a" * 50))
    batch[position] ^= 1
    with pytest.raises(CorruptBatch):
        read(bytes(batch))


def test_bytes_that_are_no_batch_are_refused() -> None:
    with pytest.raises(CorruptBatch):
        read(bytes(200))


def lying_count(base: int) -> bytes:
    batch = bytearray(batch_at(base, b"a"))
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    return with_valid_crc(batch)


def not_compressed(base: int) -> bytes:
    batch = bytearray(batch_at(base, b"a" * 100))
    batch[22] |= Codec.ZSTD
    return with_valid_crc(batch)


def cut_record(base: int) -> bytes:
    batch = bytearray(batch_at(base, b"a" * 100, b"b"))
    batch[HEADER_SIZE] ^= 0x40
    return with_valid_crc(batch)


@pytest.mark.parametrize("kernel", [compiled.decode, vector.decode], ids=["compiled", "vector"])
@pytest.mark.parametrize(
    ("unreadable", "reason"),
    [
        (lying_count, b"claims 2147483647 records"),
        (not_compressed, b"do not decompress"),
        (cut_record, b"batch"),
    ],
)
def test_a_batch_that_nobody_can_read_comes_out_whole_and_stops_nothing(
    unreadable: Callable[[int], bytes], reason: bytes, kernel: Kernel
) -> None:
    bad = unreadable(2)
    data = batch_at(0, b"a", b"b") + bad + batch_at(4, b"c", codec=Codec.LZ4)
    rows = read(data, "offset", "key", "value", "headers", kernel=kernel)
    assert [row["offset"] for row in rows] == [0, 1, 2, 4]
    assert (rows[2]["key"], rows[2]["value"]) == (None, bad)
    ((name, said),) = [(header["key"], header["value"]) for header in rows[2]["headers"]]  # type: ignore[attr-defined]
    assert name == "headrace.unreadable"
    assert reason in said
    # Read in two parts, it is in the part that has its first offset.
    assert [row["offset"] for row in read(data, end=3, kernel=kernel)] == [0, 1, 2]
    assert [row["offset"] for row in read(data, first=3, kernel=kernel)] == [4]


def test_a_decompression_bomb_stops_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections_module, "DECOMPRESSED_BYTES_MAX", 1_000_000)
    bomb = batch_at(0, bytes(4_000_000), codec=Codec.ZSTD)
    rows = read(bomb + batch_at(1, b"next"))
    assert [row["value"] for row in rows] == [bomb, b"next"]


def test_a_batch_of_no_records_stands_for_many_offsets_and_gives_nothing() -> None:
    hole = bytearray(batch_at(1, b"x")[:HEADER_SIZE])
    hole[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    hole[23:27] = (2**31 - 1).to_bytes(4, "big")
    hole[57:61] = bytes(4)
    data = batch_at(0, b"a") + with_valid_crc(hole) + batch_at(2**31 + 1, b"b")
    assert offsets(data) == [0, 2**31 + 1]
    assert offsets(data, first=5, end=1000) == []


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_memory_that_is_used_again_mixes_nothing_up(codec: Codec) -> None:
    """Batches that fill it, one that is larger than all of it, and small ones behind; then all of them once more."""
    sizes = [1_500_000] * 9 + [20_000_000] + [10] * 3
    data = b"".join(batch_at(i, bytes([65 + i]) * size, codec=codec) for i, size in enumerate(sizes))
    inflated = Inflated()
    for _ in range(2):
        values = [row["value"] for row in read(data, inflated=inflated)]
        assert [(value[0] - 65, len(value)) for value in values] == list(enumerate(sizes))  # type: ignore[index,arg-type]


def test_control_batches_never_come_out() -> None:
    data = batch_at(0, b"a", producer=PRODUCER) + marker_at(1, PRODUCER, is_commit=True) + batch_at(2, b"b")
    assert offsets(data) == [0, 2]
    assert offsets(data, isolation=Isolation.READ_COMMITTED) == [0, 2]


ABORTED_THEN_COMMITTED = b"".join(
    (
        batch_at(0, b"void", producer=PRODUCER),
        batch_at(1, b"kept", producer=OTHER),
        batch_at(2, b"void", producer=PRODUCER),
        marker_at(3, PRODUCER, is_commit=False),
        batch_at(4, b"kept", producer=PRODUCER),
        marker_at(5, PRODUCER, is_commit=True),
        marker_at(6, OTHER, is_commit=True),
        batch_at(7, b"kept"),
    )
)


@pytest.mark.parametrize("last", [None, 3], ids=["ends at its marker", "ends where a manifest says"])
def test_aborted_transactions_are_skipped_when_reading_committed(last: int | None) -> None:
    options = {"aborted": [AbortedTransaction(PRODUCER, 0, last)], "isolation": Isolation.READ_COMMITTED}
    assert offsets(ABORTED_THEN_COMMITTED, **options) == [1, 4, 7]
    assert offsets(ABORTED_THEN_COMMITTED, first=2, **options) == [4, 7]
    assert offsets(ABORTED_THEN_COMMITTED) == [0, 1, 2, 4, 7]


def test_a_batch_that_compaction_emptied_is_passed_over() -> None:
    empty = bytearray(batch_at(0, b"a")[:HEADER_SIZE])
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    assert offsets(with_valid_crc(empty) + batch_at(1, b"b")) == [1]


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ValueError, match="no such column: price"):
        Columns(["price"])
