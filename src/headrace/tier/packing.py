"""Which partitions share an object. Pure.

A busy partition, one that gathered enough since the last round, gets stream objects of its own. All quiet ones share
stream set objects, so that the number of PUTs does not grow with the number of partitions.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from headrace.tier.format.object import Kind

P = TypeVar("P")


class Waiting(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """A partition and the bytes of it that wait for upload."""

    partition: P
    size: int


class Parcel(msgspec.Struct, Generic[P], frozen=True):
    """What goes into one object."""

    kind: Kind
    partitions: tuple[P, ...]


def pack(waiting: Iterable[Waiting[P]], *, stream_bytes: int, object_bytes: int, count_max: int) -> list[Parcel[P]]:
    """Sets first: they hold the most partitions, and each is small. `count_max` is what one commit can hold."""
    streams: list[Parcel[P]] = []
    sets: list[Parcel[P]] = []
    sharing: list[P] = []
    shared_size = 0
    for each in waiting:
        if each.size >= stream_bytes:
            streams.append(Parcel(Kind.STREAM, (each.partition,)))
            continue
        if sharing and (shared_size + each.size > object_bytes or len(sharing) == count_max):
            sets.append(Parcel(Kind.STREAM_SET, tuple(sharing)))
            sharing, shared_size = [], 0
        sharing.append(each.partition)
        shared_size += each.size
    if sharing:
        sets.append(Parcel(Kind.STREAM_SET if len(sharing) > 1 else Kind.STREAM, tuple(sharing)))
    return [*sets, *streams]
