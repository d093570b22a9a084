"""Which partitions share an object. Pure.

A busy partition, one that gathered enough since the last round, gets stream objects of its own. All quiet ones share
stream set objects, so that the number of PUTs does not grow with the number of partitions. An object costs two PUTs and
milliseconds of CPU whatever its size: at full speed only full ones are made.
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


class Packed(msgspec.Struct, Generic[P], frozen=True):
    parcels: list[Parcel[P]]
    left_bytes: int
    """What of those that wait is in none of them."""


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
            sets.append(_set_of(sharing))
            sharing, shared_size = [], 0
        sharing.append(each.partition)
        shared_size += each.size
    if sharing:
        sets.append(_set_of(sharing))
    return [*sets, *streams]


def pack_full(waiting: Iterable[Waiting[P]], *, stream_bytes: int, object_bytes: int, count_max: int) -> Packed[P]:
    """The same for a time when more is coming: sets that fill an object, and the rest waits for the next.

    A set ends with the partition that fills it, and whoever gathers cuts that one short. Those with the most go first: what
    was left becomes the next round's first.
    """
    parcels: list[Parcel[P]] = []
    sharing: list[P] = []
    shared_size = left_bytes = 0
    for each in sorted(waiting, key=_size, reverse=True):
        if each.size >= stream_bytes:
            parcels.append(Parcel(Kind.STREAM, (each.partition,)))
            left_bytes += max(0, each.size - object_bytes)
            continue
        sharing.append(each.partition)
        shared_size += each.size
        if shared_size >= object_bytes or len(sharing) == count_max:
            parcels.append(_set_of(sharing))
            left_bytes += max(0, shared_size - object_bytes)
            sharing, shared_size = [], 0
    return Packed(parcels, left_bytes + shared_size)


def _set_of(partitions: list[P]) -> Parcel[P]:
    return Parcel(Kind.STREAM_SET if len(partitions) > 1 else Kind.STREAM, tuple(partitions))


def _size(waiting: Waiting[P]) -> int:
    return waiting.size
