"""All four compressions give back what went in, stop at the limit, and refuse everything that was cut."""

import gzip
import struct
import tracemalloc
import zlib

import lz4.block
import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedRequest, TooLarge, UnsupportedCompression
from headrace.wire.logjam.compression import Compression, compress, decompress

BODY = b'{"action":"' + b"Home#index " * 100 + b'"}'
LIMIT = 1_000_000


@given(body=st.binary(max_size=2000), method=st.sampled_from(Compression))
def test_bodies_round_trip(body: bytes, method: Compression) -> None:
    assert decompress(method, compress(method, body), bytes_max=LIMIT) == body


@pytest.mark.parametrize(
    ("method", "compressed"),
    [
        (1, zlib.compress(BODY)),
        (1, gzip.compress(BODY)),
        (2, snappy.compress(BODY)),
        (3, struct.pack(">I", len(BODY)) + lz4.block.compress(BODY, store_size=False)),
    ],
    ids=["zlib", "gzip", "snappy", "lz4"],
)
def test_what_other_libraries_compress_is_understood(method: int, compressed: bytes) -> None:
    assert decompress(method, compressed, bytes_max=len(BODY)) == BODY
    with pytest.raises(TooLarge):
        decompress(method, compressed, bytes_max=len(BODY) - 1)
    for cut in range(len(compressed)):
        with pytest.raises(MalformedRequest):
            decompress(method, compressed[:cut], bytes_max=LIMIT)


@pytest.mark.parametrize(
    ("method", "bomb"),
    [
        (1, zlib.compress(bytes(50_000_000), 9)),
        (2, b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 10),
        (3, struct.pack(">I", 2**32 - 1) + b"\x1f\x00\x01\x00" + b"\xff" * 100),
    ],
    ids=["zlib", "snappy", "lz4"],
)
def test_a_bomb_stops_at_the_limit(method: int, bomb: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(TooLarge):
        decompress(method, bomb, bytes_max=LIMIT)
    assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    tracemalloc.stop()


def test_a_size_that_the_body_cannot_hold_allocates_nothing() -> None:
    with pytest.raises(MalformedRequest):
        decompress(2, b"\xff\xff\x03\x00", bytes_max=LIMIT)
    with pytest.raises(MalformedRequest):
        decompress(3, struct.pack(">I", 999_999) + b"\x00", bytes_max=LIMIT)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(4, b"x", bytes_max=LIMIT)
