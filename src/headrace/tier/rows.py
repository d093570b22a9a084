"""The metastore's entries of segments and objects, as values: for whoever may not go by what this process remembers.

An object is needed while a segment entry names it. Every transaction that makes an entry name an object also writes the
object's own entry (`plans.commit`, `plans.replace`). So whoever reads the object's entry first and the segments after it, finds
no name, and then compares the object's entry in the transaction that gives it up, knows that none has come meanwhile.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import KeyValue, Metastore, read_all
from headrace.tier.segments import LiveSegment

_SLICE: Final = 512
"""Entries looked at before others get the loop."""


class Tail(msgspec.Struct, frozen=True, gc=False):
    """The entry of what is still in the WAL."""

    base_offset: int
    revision: int
    is_uploading: bool = False


class PartitionRows(msgspec.Struct, frozen=True):
    """One partition's entries: what is in object storage, in offset order, and what is not."""

    live: list[LiveSegment]
    tail: Tail | None


def partition_rows(items: Iterable[KeyValue], sizes: Mapping[int, int] | None = None) -> PartitionRows:
    """`sizes` are those of the objects, by id; 0 where they are not known."""
    known = sizes or {}
    live: list[LiveSegment] = []
    tail = None
    for item in items:
        segment = values.decode(pb.Segment, item.value)
        base = _base_of(item)
        if segment.status == pb.IN_OBJECT_STORE:
            live.append(_live(segment, base, known.get(segment.object_id, 0), item.mod_revision))
        else:
            tail = Tail(base, item.mod_revision, is_uploading=segment.status == pb.UPLOADING)
    return PartitionRows(live, tail)


async def object_sizes(store: Metastore) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for item in (await read_all(store, keys.OBJECTS)).items:
        sizes[object_id_in(item)] = values.decode(pb.TierObject, item.value).size_bytes
    return sizes


async def referenced_keys(store: Metastore) -> set[str]:
    """Every object that a segment in object storage lies in, by what the metastore says now."""
    found: set[str] = set()
    for number, item in enumerate((await read_all(store, keys.TOPICS)).items, 1):
        if isinstance(keys.parse(item.key), keys.SegmentKey):
            segment = values.decode(pb.Segment, item.value)
            if segment.status == pb.IN_OBJECT_STORE:
                found.add(segment.object_key)
        if not number % _SLICE:
            await asyncio.sleep(0)
    return found


def object_id_in(item: KeyValue) -> int:
    path = keys.parse(item.key)
    assert isinstance(path, keys.TierObjectKey)
    return path.object_id


def _base_of(item: KeyValue) -> int:
    path = keys.parse(item.key)
    assert isinstance(path, keys.SegmentKey)
    return path.start


def _live(segment: pb.Segment, base: int, object_size: int, revision: int) -> LiveSegment:
    return LiveSegment(
        base_offset=base,
        end_offset=segment.end_offset,
        object_id=segment.object_id,
        key=segment.object_key,
        object_size=object_size,
        position=segment.position,
        length=segment.length,
        record_count=segment.record_count,
        max_timestamp_ms=segment.max_timestamp_ms,
        leader_epoch=segment.leader_epoch,
        committed_ms=segment.updated_ms,
        revision=revision,
    )
