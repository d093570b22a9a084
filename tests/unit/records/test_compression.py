"""What the codecs give back, and what they refuse."""

from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptBatch, TooLarge
from headrace.records.batch import Codec
from headrace.records.compression import compress, decompress, decompress_into

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LZ4_FLAGS_AT = 4
LZ4_INDEPENDENT = 0x20
SIZE_MAX = 1 << 24
REPETITIVE = b"the same words again and again, " * 10_000
"""More than four of the 64 KiB blocks an LZ4 frame is made of."""


def lz4_frame(data: bytes, **options: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=2000), repeats=st.integers(1, 200))
def test_what_goes_in_comes_out(codec: Codec, data: bytes, repeats: int) -> None:
    packed = compress(codec, data * repeats)
    assert bytes(decompress(codec, packed, size_max=SIZE_MAX)) == data * repeats


@pytest.mark.parametrize("codec", COMPRESSED)
def test_room_that_is_exactly_enough_is_enough_and_a_byte_less_is_not(codec: Codec) -> None:
    packed = compress(codec, REPETITIVE)
    room = memoryview(bytearray(len(REPETITIVE)))
    assert decompress_into(codec, packed, room) == len(REPETITIVE)
    assert room == REPETITIVE
    with pytest.raises(TooLarge):
        decompress_into(codec, packed, room[:-1])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused(codec: Codec) -> None:
    with pytest.raises(TooLarge):
        decompress(codec, compress(codec, bytes(1 << 22)), size_max=1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_cut_off_at_the_end_are_missed(codec: Codec) -> None:
    packed = compress(codec, REPETITIVE)
    with pytest.raises(CorruptBatch):
        decompress(codec, packed[: len(packed) // 2], size_max=SIZE_MAX)


def test_our_lz4_frames_have_the_independent_blocks_that_java_clients_insist_on() -> None:
    assert compress(Codec.LZ4, REPETITIVE)[LZ4_FLAGS_AT] & LZ4_INDEPENDENT


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("data", [b"", b"short", REPETITIVE], ids=["empty", "one block", "many blocks"])
def test_lz4_frames_of_every_kind_are_read(data: bytes, is_linked: bool, has_checksum: bool) -> None:
    frame = lz4_frame(data, content_checksum=has_checksum, block_linked=is_linked)
    assert bytes(decompress(Codec.LZ4, frame, size_max=SIZE_MAX)) == data


def test_lz4_blocks_that_do_not_compress_are_stored_and_read() -> None:
    data = bytes((index * index * 31 + index // 7) & 0xFF for index in range(1000))
    frame = bytearray(lz4_frame(b"", content_checksum=False, block_linked=False)[:-4])
    frame[LZ4_FLAGS_AT] &= ~0x10  # no block checksums
    frame += (len(data) | 0x8000_0000).to_bytes(4, "little") + data + bytes(4)
    assert bytes(decompress(Codec.LZ4, bytes(frame), size_max=SIZE_MAX)) == data


@given(garbage=st.binary(max_size=300))
def test_garbage_behind_an_lz4_header_is_refused_or_read_but_never_worse(garbage: bytes) -> None:
    header = lz4_frame(b"x", block_linked=False)[:7]
    with suppress(CorruptBatch, TooLarge):
        decompress(Codec.LZ4, header + garbage, size_max=SIZE_MAX)
