"""Bodies in and out of Logjam's four compressions, never past an output limit.

    0 none   1 zlib (C) or gzip (Ruby)   2 raw snappy   3 lz4: four bytes of size, big-endian, then a raw block

Sizes announced inside a body are compared with the limit before anything is allocated.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from headrace.errors import MalformedRequest, TooLarge, UnsupportedCompression

_LZ4_SIZE: Final = struct.Struct(">I")
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
_LZ4_RATIO_MAX: Final = 255
_SNAPPY_RATIO_MAX: Final = 64
"""Neither format can expand further than this per byte, so a tiny body cannot make us allocate a large buffer."""


class Compression(IntEnum):
    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZ4 = 3


def decompress(method: int, body: bytes, *, bytes_max: int) -> bytes:
    """`body` as it was before compression.

    Raises `UnsupportedCompression` for an unknown method, `TooLarge` past `bytes_max`, `MalformedRequest` for
    bytes that are not what the method says.
    """
    match method:
        case Compression.NONE:
            _require_fit(len(body), bytes_max)
            return body
        case Compression.ZLIB:
            return _inflate(body, bytes_max)
        case Compression.SNAPPY:
            return _unsnap(body, bytes_max)
        case Compression.LZ4:
            return _decode_lz4(body, bytes_max)
        case _:
            raise UnsupportedCompression(f"compression method {method}")


def compress(method: Compression, body: bytes) -> bytes:
    match method:
        case Compression.NONE:
            return body
        case Compression.ZLIB:
            return zlib.compress(body)
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(body))
        case Compression.LZ4:
            return _LZ4_SIZE.pack(len(body)) + bytes(cramjam.lz4.compress_block(body, store_size=False))


def _inflate(body: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        # One byte more than allowed is enough to know that there is more.
        output = inflater.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise MalformedRequest(f"zlib body: {error}") from error
    _require_fit(len(output), bytes_max)
    if not inflater.eof:
        raise MalformedRequest("zlib body ends too early")
    if inflater.unused_data:
        raise MalformedRequest("zlib body has bytes after its end")
    return output


def _unsnap(body: bytes, bytes_max: int) -> bytes:
    size = _snappy_size(body)
    _require_fit(size, bytes_max)
    if size > len(body) * _SNAPPY_RATIO_MAX:
        raise MalformedRequest(f"snappy body of {len(body)} bytes cannot hold {size}")
    output = bytearray(size)
    try:
        written = cramjam.snappy.decompress_raw_into(body, output)
    except cramjam.DecompressionError as error:
        raise MalformedRequest(f"snappy body: {error}") from error
    _require_whole(written, size)
    return bytes(output)


def _snappy_size(body: bytes) -> int:
    """The varint in front of a raw snappy body: at most 32 bits in five bytes."""
    size = 0
    for index, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise MalformedRequest("snappy body without a size")


def _decode_lz4(body: bytes, bytes_max: int) -> bytes:
    if len(body) < _LZ4_SIZE.size:
        raise MalformedRequest("lz4 body without a size")
    (size,) = _LZ4_SIZE.unpack_from(body)
    _require_fit(size, bytes_max)
    if size > len(body) * _LZ4_RATIO_MAX:
        raise MalformedRequest(f"lz4 body of {len(body)} bytes cannot hold {size}")
    output = bytearray(size)
    try:
        written = cramjam.lz4.decompress_block_into(body[_LZ4_SIZE.size :], output, output_len=size)
    except cramjam.DecompressionError as error:
        raise MalformedRequest(f"lz4 body: {error}") from error
    _require_whole(written, size)
    return bytes(output)


def _require_fit(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise TooLarge(f"body of {size} bytes or more, limit {bytes_max}")


def _require_whole(written: int, size: int) -> None:
    if written != size:
        raise MalformedRequest(f"body says {size} bytes and holds {written}")
