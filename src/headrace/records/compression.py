"""The four codecs of record batches, with a ceiling on what comes out.

cramjam's one-shot calls have no output limit, so we decode into buffers that grow up to a cap: a few kilobytes that
claim to be gigabytes are refused after the cap, not after the memory.
"""

from typing import Final

import cramjam

from headrace.errors import CorruptBatch, TooLarge
from headrace.records.batch import Buffer, Codec

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_FIRST_GUESS_MIN: Final = 64 * 1024
_TOO_SMALL: Final = "whole buffer"
"""What cramjam says when the output buffer is full; any other failure is corruption."""


def compress(codec: int, data: Buffer) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(bytes(data))
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(data))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise CorruptBatch(f"unknown compression {codec}")


def decompress(codec: int, data: Buffer, *, size_max: int) -> Buffer:
    """The records section in the clear; `TooLarge` beyond `size_max`, `CorruptBatch` when it does not decode."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_growing(cramjam.gzip.decompress_into, data, size_max)
        case Codec.SNAPPY:
            return _decompress_snappy(data, size_max)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, size_max)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, size_max)
        case _:
            raise CorruptBatch(f"unknown compression {codec}")


def _decompress_growing(decompress_into, data: Buffer, size_max: int) -> Buffer:  # type: ignore[no-untyped-def]
    capacity = min(max(len(data) * 4, _FIRST_GUESS_MIN), size_max)
    while True:
        output = bytearray(capacity)
        try:
            written: int = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise CorruptBatch(f"records do not decompress: {error}") from error
            if capacity >= size_max:
                raise TooLarge(f"records decompress to more than {size_max} bytes") from error
            capacity = min(capacity * 4, size_max)
            continue
        return memoryview(output)[:written]


def _decompress_snappy(data: Buffer, size_max: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, size_max)
    output = bytearray()
    position = _XERIAL_HEADER_SIZE
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        block = view[position + 4 : position + 4 + size]
        if len(block) != size:
            raise CorruptBatch("snappy block is cut short")
        output += _decompress_raw_snappy(block, size_max - len(output))
        position += 4 + size
    return output


def _decompress_raw_snappy(block: memoryview, size_max: int) -> Buffer:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > size_max:
            raise TooLarge(f"records decompress to {size} bytes, limit {size_max}")
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records do not decompress: {error}") from error
    return output


def _compress_xerial(data: bytes) -> bytes:
    """Java clients expect the xerial framing; librdkafka reads both."""
    parts = [_XERIAL_MAGIC, b"\x00\x00\x00\x01\x00\x00\x00\x01"]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)
