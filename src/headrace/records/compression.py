"""The four codecs of record batches, with a ceiling on what comes out.

cramjam's one-shot calls have no output limit, so we decode into buffers that grow up to a cap: a few kilobytes that
claim to be gigabytes are refused after the cap, not after the memory.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import cramjam

from headrace.errors import CorruptBatch, TooLarge
from headrace.records.batch import Buffer, Codec

DecompressInto: TypeAlias = Callable[[Buffer, memoryview], int]
"""What every codec of cramjam has."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_BLOCK_SIZE: Final = 32 * 1024

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEADER_SIZE: Final = 7
"""Magic, flags, block size and the header's checksum; a content size may come in between."""
_LZ4_VERSION: Final = 1
_LZ4_IS_INDEPENDENT: Final = 0x20
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_STORED: Final = 0x8000_0000
"""Set in a block's size when its bytes are as they were."""
_LZ4_BLOCK_SIZE_CODE_MIN: Final = 4
"""64 KiB; every step is four times as much."""

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
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise CorruptBatch(f"unknown compression {codec}")


def decompress(codec: int, data: Buffer, *, size_max: int) -> Buffer:
    """The records section in the clear; `TooLarge` beyond `size_max`, `CorruptBatch` when it does not decode."""
    if codec == Codec.NONE:
        return data
    capacity = min(max(len(data) * 4, _FIRST_GUESS_MIN), size_max)
    while True:
        output = memoryview(bytearray(capacity))
        try:
            return output[: decompress_into(codec, data, output)]
        except TooLarge:
            if capacity >= size_max:
                raise
            capacity = min(capacity * 4, size_max)


def decompress_into(codec: int, data: Buffer, output: memoryview) -> int:
    """The records section in the clear into the caller's memory; how much of it was filled.

    `TooLarge` when it does not fit, `CorruptBatch` when it does not decode.
    """
    match codec:
        case Codec.GZIP:
            return _inflate(cramjam.gzip.decompress_into, data, output)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), output)
        case Codec.LZ4:
            return _decompress_lz4(memoryview(data), output)
        case Codec.ZSTD:
            return _inflate(cramjam.zstd.decompress_into, data, output)
        case _:
            raise CorruptBatch(f"unknown compression {codec}")


def _inflate(codec_into: DecompressInto, data: Buffer, output: memoryview) -> int:
    try:
        return codec_into(data, output)
    except cramjam.DecompressionError as error:
        if _TOO_SMALL in str(error):
            raise _overflow(output) from error
        raise CorruptBatch(f"records do not decompress: {error}") from error


def _decompress_lz4(data: memoryview, output: memoryview) -> int:
    """Block by block, which is ten times faster than cramjam's frame decoder.

    The frame's own checksums are not looked at: whoever gets here has verified the batch's CRC-32C, which covers them.
    Frames of a kind that producers hardly write (linked blocks, dictionaries, several frames) go to the frame decoder.
    """
    if len(data) < _LZ4_HEADER_SIZE or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptBatch("records do not decompress: no LZ4 frame")
    flags, block_size_code = data[4], data[5] >> 4 & 7
    position = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_HAS_SIZE else 0)
    if flags >> 6 != _LZ4_VERSION or flags & _LZ4_HAS_DICTIONARY or block_size_code < _LZ4_BLOCK_SIZE_CODE_MIN:
        return _inflate(cramjam.lz4.decompress_into, data, output)
    block_max = 1 << (2 * block_size_code + 8)
    checksum_size = 4 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
    trailer_size = 4 if flags & _LZ4_HAS_CHECKSUM else 0
    fill = 0
    while size := _lz4_block_size(data, position):
        position += 4
        is_stored, size = size >= _LZ4_STORED, size & ~_LZ4_STORED
        block = data[position : position + size]
        if len(block) != size:
            raise CorruptBatch("LZ4 block is cut short")
        position += size + checksum_size
        if fill and not flags & _LZ4_IS_INDEPENDENT:
            return _inflate(cramjam.lz4.decompress_into, data, output)
        fill += _store(block, output[fill:]) if is_stored else _decompress_lz4_block(block, output[fill:], block_max)
    if position + 4 + trailer_size != len(data):
        return _inflate(cramjam.lz4.decompress_into, data, output)
    return fill


def _lz4_block_size(data: memoryview, position: int) -> int:
    if position + 4 > len(data):
        raise CorruptBatch("LZ4 frame is cut short")
    return int.from_bytes(data[position : position + 4], "little")


def _decompress_lz4_block(block: memoryview, output: memoryview, block_max: int) -> int:
    try:
        written: int = cramjam.lz4.decompress_block_into(block, output[:block_max])
    except cramjam.DecompressionError as error:
        if len(output) < block_max:
            raise _overflow(output) from error
        raise CorruptBatch(f"records do not decompress: {error}") from error
    return written


def _decompress_snappy(data: memoryview, output: memoryview) -> int:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(data, output)
    fill = 0
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        block = data[position + 4 : position + 4 + size]
        if len(block) != size:
            raise CorruptBatch("snappy block is cut short")
        fill += _decompress_raw_snappy(block, output[fill:])
        position += 4 + size
    return fill


def _decompress_raw_snappy(block: memoryview, output: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > len(output):
            raise _overflow(output)
        cramjam.snappy.decompress_raw_into(block, output[:size])
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records do not decompress: {error}") from error
    return size


def _store(block: memoryview, output: memoryview) -> int:
    if len(block) > len(output):
        raise _overflow(output)
    output[: len(block)] = block
    return len(block)


def _overflow(output: memoryview) -> TooLarge:
    return TooLarge(f"records decompress to more than the {len(output)} bytes there are for them")


def _compress_lz4(data: Buffer) -> bytes:
    """Independent blocks: Kafka's Java clients refuse frames whose blocks are linked, cramjam's default."""
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: bytes) -> bytes:
    """Java clients expect the xerial framing; librdkafka reads both."""
    parts = [_XERIAL_MAGIC, b"\x00\x00\x00\x01\x00\x00\x00\x01"]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)
