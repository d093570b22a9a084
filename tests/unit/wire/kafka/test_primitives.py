"""Lengths and varints at their edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedRequest
from headrace.limits import WIRE_ARRAY_ITEMS_MAX
from headrace.wire.kafka import primitives


@given(st.integers(0, 2**32 - 1))
def test_uvarint_round_trips(value: int) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)
    assert primitives.read_uvarint(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_is_little_endian_base_128(value: int, raw: str) -> None:
    out = bytearray()
    primitives.write_uvarint(out, value)
    assert out.hex() == raw


@pytest.mark.parametrize("raw", ["ffffffff10", "ffffffffff01", "808080808000"])
def test_uvarint_beyond_32_bits_is_malformed(raw: str) -> None:
    with pytest.raises(MalformedRequest):
        primitives.read_uvarint(memoryview(bytes.fromhex(raw)), 0)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 300, 20_000])
def test_compact_lengths_round_trip_around_the_one_byte_edge(size: int) -> None:
    out = bytearray()
    primitives.write_compact_string(out, "x" * size)
    assert primitives.read_compact_string(memoryview(out), 0) == ("x" * size, len(out))
    out = bytearray()
    primitives.write_compact_bytes(out, bytes(size))
    assert primitives.read_compact_bytes(memoryview(out), 0) == (bytes(size), len(out))


def test_null_is_minus_one_or_zero() -> None:
    for write, raw in (
        (primitives.write_nullable_string, "ffff"),
        (primitives.write_nullable_compact_string, "00"),
        (primitives.write_nullable_bytes, "ffffffff"),
        (primitives.write_nullable_compact_bytes, "00"),
    ):
        out = bytearray()
        write(out, None)
        assert out.hex() == raw
    assert primitives.read_nullable_string(memoryview(b"\xff\xff"), 0) == (None, 2)
    assert primitives.read_nullable_compact_string(memoryview(b"\x00"), 0) == (None, 1)
    assert primitives.read_nullable_bytes(memoryview(b"\xff\xff\xff\xff"), 0) == (None, 4)
    assert primitives.read_nullable_compact_bytes(memoryview(b"\x00"), 0) == (None, 1)


@pytest.mark.parametrize("raw", ["fffe", "8000", "000461", "7fff61"])
def test_legacy_string_longer_than_the_data_or_negative_is_malformed(raw: str) -> None:
    for read in (primitives.read_string, primitives.read_nullable_string):
        with pytest.raises(MalformedRequest):
            read(memoryview(bytes.fromhex(raw)), 0)


@pytest.mark.parametrize("raw", ["0361", "ffffffff0f61"])
def test_compact_string_longer_than_the_data_is_malformed(raw: str) -> None:
    for read in (primitives.read_compact_string, primitives.read_nullable_compact_string):
        with pytest.raises(MalformedRequest):
            read(memoryview(bytes.fromhex(raw)), 0)


def test_tag_longer_than_the_data_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        primitives.skip_tags(memoryview(bytes.fromhex("01 05 04 616263")), 0)


def test_int_arrays_longer_than_the_data_are_malformed() -> None:
    with pytest.raises(MalformedRequest):
        primitives.read_int32s(memoryview(bytes(11)), 0, 3)
    with pytest.raises(MalformedRequest):
        primitives.read_int64s(memoryview(bytes(23)), 0, 3)


@pytest.mark.trap(51)
def test_arrays_beyond_the_bound_are_malformed_even_when_the_bytes_are_there() -> None:
    count = WIRE_ARRAY_ITEMS_MAX + 1
    legacy, compact = bytearray(), bytearray()
    primitives.write_count(legacy, count)
    primitives.write_compact_count(compact, count)
    for read in (primitives.read_count, primitives.read_nullable_count):
        with pytest.raises(MalformedRequest):
            read(memoryview(legacy + bytes(count)), 0)
    for read in (primitives.read_compact_count, primitives.read_nullable_compact_count):
        with pytest.raises(MalformedRequest):
            read(memoryview(compact + bytes(count)), 0)
