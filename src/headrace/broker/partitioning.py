"""Which partition a key belongs to, as Kafka's Java client decides it: murmur2, and its sign bit dropped.

librdkafka's default differs (CRC32) unless it is told `partitioner=murmur2_random`: a record of such a producer may lie elsewhere.
"""

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    length = len(data)
    mixed = (_SEED ^ length) & _MASK
    whole = length // 4
    for word in struct.unpack_from(f"<{whole}I", data):
        word = (word * _M) & _MASK
        word ^= word >> 24
        word = (word * _M) & _MASK
        mixed = ((mixed * _M) & _MASK) ^ word
    rest = data[whole * 4 :]
    if rest:
        mixed ^= int.from_bytes(rest, "little")
        mixed = (mixed * _M) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _M) & _MASK
    return mixed ^ (mixed >> 15)
