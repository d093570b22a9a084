"""A metastore made anew from the bucket alone, when it is lost together with its disk.

The newest snapshot gives configs, identities and empty topics; checkpoint and manifests give every committed segment,
and win where the two differ. Counters and ceilings jump far ahead, since the lost metastore may have given out more
than the bucket tells: numbers and offsets are never used twice. Until `tier verify` has passed, nothing is collected.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Delete, Metastore, Op, Put, only, write_in_chunks
from headrace.errors import Conflict, Invalid
from headrace.ids import TopicId
from headrace.tier import plans
from headrace.tier.catalog import load_catalog
from headrace.tier.format.catalog import Catalog, PartitionState
from headrace.tier.format.keys import DATA, object_id_of
from headrace.tier.format.manifest import Segment, TopicEntry
from headrace.tier.snapshots import newest_snapshot

_OFFSETS_AHEAD: Final = 1 << 28
"""More records than a WAL can have held beyond the last upload."""
_NUMBERS_AHEAD: Final = 1 << 20
"""Producer ids and broker epochs that may have been given out since the last snapshot."""
_LOST_RING: Final = b"restored"
"""A ring id that no WAL has: the broker then resumes above its ceilings."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    topic_count: int
    segment_count: int
    manifest_number: int
    is_from_snapshot: bool


async def restore_metastore(blobs: BlobStore, store: Metastore, *, leader: str, clock: Clock) -> Restored:
    """Fill an empty metastore. `leader` is the broker that will lead partitions nobody is known to lead."""
    if await store.get(keys.CLUSTER) is not None:
        raise Conflict("the metastore is not empty; restore needs one that has never been used")
    catalog = await load_catalog(blobs)
    snapshot = {entry.key: entry.value for entry in await newest_snapshot(blobs)}
    object_id = await _highest_object_id(blobs)
    entries = dict(_kept(snapshot))
    entries.update(_counters(snapshot, catalog, object_id))
    for topic in catalog.topics.values():
        entries.update(_topic(topic, catalog, entries, leader, clock.now_ms()))
    for segment in (segment for state in catalog.partitions.values() for segment in state.segments):
        entries.update(_segment(segment, catalog, leader, clock.now_ms()))
    entries.setdefault(keys.broker_ring(leader), _LOST_RING)
    entries[plans.HOLD] = b"restored"
    # The cluster's identity last: without it the store still counts as empty, and restoring can be done again.
    identity = pb.ClusterIdentity(cluster_id=catalog.cluster_id, created_ms=clock.now_ms())
    ops: list[Op] = [Put(path, value) for path, value in entries.items()]
    await write_in_chunks(store, [*ops, Put(keys.CLUSTER, values.encode(identity))])
    return Restored(
        cluster_id=catalog.cluster_id,
        topic_count=sum(isinstance(keys.parse(path), keys.TopicConfigKey) for path in entries),
        segment_count=sum(len(state.segments) for state in catalog.partitions.values()),
        manifest_number=catalog.number,
        is_from_snapshot=bool(snapshot),
    )


async def release_hold(store: Metastore) -> bool:
    """The bucket was verified: collection may go on. False when nothing was held."""
    if await store.get(plans.HOLD) is None:
        return False
    await store.txn((), (Delete(only(plans.HOLD)),))
    return True


async def _highest_object_id(blobs: BlobStore) -> int:
    highest = 0
    async for info in blobs.list(DATA):
        try:
            highest = max(highest, object_id_of(info.key).sequence)
        except Invalid:
            continue
    return highest


def _kept(snapshot: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Everything but what the manifests know better, and what belongs to a process that is gone."""
    for path, value in snapshot.items():
        match keys.parse(path):
            case keys.SegmentKey() | keys.TierObjectKey() | keys.BrokerKey() | keys.ClusterKey():
                continue
            case keys.BrokerIdentityKey():
                identity = values.decode(pb.BrokerIdentity, value)
                identity.broker_epoch += _NUMBERS_AHEAD
                yield path, values.encode(identity)
            case None if path in plans.PENDING_MANIFESTS:
                continue
            case _:
                yield path, value


def _counters(snapshot: Mapping[str, bytes], catalog: Catalog, object_id: int) -> Iterator[tuple[str, bytes]]:
    producer_id = 0
    if keys.NEXT_PRODUCER_ID in snapshot:
        producer_id = values.decode(pb.Counter, snapshot[keys.NEXT_PRODUCER_ID]).next
    for path, following in (
        (keys.NEXT_PRODUCER_ID, producer_id + _NUMBERS_AHEAD),
        (keys.NEXT_OBJECT_ID, object_id + _NUMBERS_AHEAD),
        (keys.NEXT_COMMIT_NUMBER, catalog.number + 1),
    ):
        yield path, values.encode(pb.Counter(next=following))


def _topic(
    topic: TopicEntry, catalog: Catalog, known: Mapping[str, bytes], leader: str, now_ms: int
) -> Iterator[tuple[str, bytes]]:
    topic_id = TopicId(UUID(topic.topic_id).bytes)
    path = keys.topic_config(topic.name)
    is_known = path in known and values.decode(pb.TopicConfig, known[path]).topic_id == topic_id
    count = topic.partition_count
    if is_known:
        count = max(count, values.decode(pb.TopicConfig, known[path]).partitions)
    else:
        config = values.topic_config(topic_id, partitions=count, overrides=topic.config, created_ms=now_ms)
        yield path, values.encode(config)
    for index in range(count):
        state = catalog.partition(topic.topic_id, index)
        yield from _partition(topic.name, index, state, known if is_known else {}, leader)


def _partition(
    name: str, index: int, state: PartitionState, known: Mapping[str, bytes], leader: str
) -> Iterator[tuple[str, bytes]]:
    path = keys.leader(name, index)
    if path not in known:
        epoch = max((segment.leader_epoch for segment in state.segments), default=0) + 1
        entry = pb.PartitionLeader(broker_id=leader, leader_epoch=epoch, replicas=[leader], isr=[leader])
        yield path, values.encode(entry)
    ceiling = max(state.end_offset + _OFFSETS_AHEAD, _offset(known, keys.ceiling(name, index)))
    yield keys.ceiling(name, index), values.encode(pb.PartitionOffset(offset=ceiling))
    log_start = max(state.log_start, _offset(known, keys.log_start(name, index)))
    if log_start:
        yield keys.log_start(name, index), values.encode(pb.PartitionOffset(offset=log_start))


def _segment(segment: Segment, catalog: Catalog, leader: str, now_ms: int) -> Iterable[tuple[str, bytes]]:
    object_id = object_id_of(segment.key)
    name = catalog.topics[segment.topic_id].name
    stored = pb.Segment(
        status=pb.IN_OBJECT_STORE,
        object_key=segment.key,
        size_bytes=segment.length,
        end_offset=segment.end_offset,
        position=segment.position,
        length=segment.length,
        max_timestamp_ms=segment.max_timestamp_ms,
        min_leader_epoch=segment.leader_epoch,
        record_count=segment.record_count,
        object_id=object_id.sequence,
        leader_epoch=segment.leader_epoch,
        updated_ms=now_ms,
    )
    entry = pb.TierObject(
        status=pb.COMMITTED,
        object_key=segment.key,
        size_bytes=segment.object_size,
        broker_id=leader,
        updated_ms=now_ms,
    )
    return (
        (keys.segment(name, segment.partition, segment.base_offset), values.encode(stored)),
        (keys.tier_object(object_id.sequence), values.encode(entry)),
    )


def _offset(known: Mapping[str, bytes], path: str) -> int:
    return values.decode(pb.PartitionOffset, known[path]).offset if path in known else 0
