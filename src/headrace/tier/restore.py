"""A metastore made anew from the bucket alone, when it is lost together with its disk.

The newest snapshot gives configs, identities and empty topics; checkpoint and manifests give every committed segment,
and win where the two differ. Counters and ceilings jump far ahead, since the lost metastore may have given out more
than the bucket tells: numbers and offsets are never used twice. Until `tier verify` has passed, nothing is collected.

The broker that asks for it leads every partition from then on. Whoever led them before is gone with the metastore; where it
was one, the new leader goes on under its number, and so finds what that one has saved of producers and transactions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Delete, KeyRange, Metastore, Op, Put, only, write_in_chunks
from headrace.errors import Conflict, Invalid
from headrace.ids import TopicId, show_topic_id
from headrace.tier import plans
from headrace.tier.ceilings import newest_pictures
from headrace.tier.format.ceilings import CeilingPicture
from headrace.tier.format.inventory import Inventory, PartitionState
from headrace.tier.format.keys import DATA, ObjectId, object_id_of
from headrace.tier.format.manifest import Segment, TopicEntry
from headrace.tier.inventory import load_inventory
from headrace.tier.lives import Remembered, lives_entry, lives_in
from headrace.tier.snapshots import newest_snapshot

_OFFSETS_AHEAD: Final = 1 << 28
"""More records than a WAL can have held beyond the last upload: the bound of partitions whose ceiling the bucket does not know."""
_NUMBERS_AHEAD: Final = 1 << 20
"""Producer ids and broker epochs that may have been given out since the last snapshot."""
_EPOCHS_AHEAD: Final = 1 << 16
"""Leader epochs that starts since the last snapshot may have used."""
_VERSIONS_AHEAD: Final = 1000
"""Versions of one Wasm module that may have been uploaded, and removed again, since the last snapshot."""
_LOST_RING: Final = b"restored"
"""A ring id that no WAL has: the broker then resumes above its ceilings."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    topic_count: int
    segment_count: int
    manifest_number: int
    is_from_snapshot: bool
    unnamed_objects: int
    """Data objects newer than all that the manifests name: unfinished uploads, or commits whose manifests are lost. They stay."""


async def restore_metastore(
    blobs: BlobStore,
    store: Metastore,
    *,
    leader: str,
    clock: Clock,
    module_ids: Iterable[str] = (),
    was_store_down: bool = False,
) -> Restored:
    """Fill an empty metastore. `leader` is the broker that leads every partition from now on.

    `module_ids` are the Wasm modules whose bytes the bucket has: their ids are not given out again. With `was_store_down` the
    ceilings in the bucket are not believed: offsets were given out that it never heard of.
    """
    if await store.get(keys.CLUSTER) is not None:
        raise Conflict("the metastore is not empty; restore needs one that has never been used")
    inventory = await load_inventory(blobs)
    snapshot = {entry.key: entry.value for entry in await newest_snapshot(blobs)}
    object_ids = await _object_ids(blobs)
    entries = dict(_kept(snapshot, _replaced(snapshot, inventory)))
    entries.update(_counters(snapshot, inventory, max((each.sequence for each in object_ids), default=0)))
    entries.update(_identity(snapshot, object_ids, leader))
    pictures = [] if was_store_down else await newest_pictures(blobs)
    for topic in inventory.topics.values():
        entries.update(_topic(topic, inventory, entries, clock.now_ms()))
    entries.update(dict(_module_versions(entries, module_ids)))
    entries.update(dict(_ceilings(entries, inventory, pictures)))
    entries.update(dict(_taken_over(entries, leader)))
    for segment in (segment for state in inventory.partitions.values() for segment in state.segments):
        entries.update(_segment(segment, inventory, leader, clock.now_ms()))
    entries[plans.HOLD] = b"restored"
    # Takes over from every life that has written to the bucket; one that still runs stops when it notices.
    entries.update([lives_entry(Remembered(former=await lives_in(blobs)))])
    # The cluster's identity last: without it the store still counts as empty, and restoring can be done again.
    identity = pb.ClusterIdentity(cluster_id=inventory.cluster_id, created_ms=clock.now_ms())
    ops: list[Op] = [Put(path, value) for path, value in entries.items()]
    await write_in_chunks(store, [*ops, Put(keys.CLUSTER, values.encode(identity))])
    return Restored(
        cluster_id=inventory.cluster_id,
        topic_count=sum(isinstance(keys.parse(path), keys.TopicConfigKey) for path in entries),
        segment_count=sum(len(state.segments) for state in inventory.partitions.values()),
        manifest_number=inventory.number,
        is_from_snapshot=bool(snapshot),
        unnamed_objects=_count_unnamed(inventory, object_ids),
    )


async def release_hold(store: Metastore) -> bool:
    """The bucket was verified: collection may go on. False when nothing was held."""
    if await store.get(plans.HOLD) is None:
        return False
    await store.txn((), (Delete(only(plans.HOLD)),))
    return True


async def _object_ids(blobs: BlobStore) -> list[ObjectId]:
    found: list[ObjectId] = []
    async for info in blobs.list(DATA):
        try:
            found.append(object_id_of(info.key))
        except Invalid:
            continue
    return found


def _count_unnamed(inventory: Inventory, object_ids: Iterable[ObjectId]) -> int:
    named = {
        object_id_of(segment.key).sequence for state in inventory.partitions.values() for segment in state.segments
    }
    newest = max(named, default=0)
    return sum(each.sequence > newest for each in object_ids)


def _replaced(snapshot: Mapping[str, bytes], inventory: Inventory) -> list[KeyRange]:
    """What the snapshot knows of topics that were deleted since, where another has the name now."""
    return [
        keys.topic(topic.name)
        for topic in inventory.topics.values()
        if (path := keys.topic_config(topic.name)) in snapshot
        and values.decode(pb.TopicConfig, snapshot[path]).topic_id != UUID(topic.topic_id).bytes
    ]


def _kept(snapshot: Mapping[str, bytes], replaced: Sequence[KeyRange]) -> Iterator[tuple[str, bytes]]:
    """Everything but what the manifests know better, and what belongs to brokers and topics that are gone."""
    for path, value in snapshot.items():
        if any(path in each for each in replaced):
            continue
        match keys.parse(path):
            case keys.SegmentKey() | keys.TierObjectKey() | keys.BrokerKey() | keys.ClusterKey():
                continue
            case keys.BrokerIdentityKey():
                continue
            case None if path in plans.PENDING_MANIFESTS or path in keys.BROKER_IDENTITIES:
                continue
            case _:
                yield path, value


def _identity(
    snapshot: Mapping[str, bytes], object_ids: Iterable[ObjectId], leader: str
) -> Iterator[tuple[str, bytes]]:
    """Who the leader is from now on: the next life of the one broker there was, under whatever name."""
    known = {
        key.broker_id: values.decode(pb.BrokerIdentity, value)
        for path, value in snapshot.items()
        if isinstance(key := keys.parse(path), keys.BrokerIdentityKey)
    }
    former = leader if leader in known else min(known) if len(known) == 1 else None
    # The epoch of a snapshot may be old, and without one the objects' names are all there is.
    epochs: dict[int, int] = {}
    for each in object_ids:
        epochs[each.broker] = max(epochs.get(each.broker, 0), each.epoch)
    if former is not None:
        number = known[former].numeric_id
        epoch = max(known[former].broker_epoch, epochs.get(number, 0))
    else:
        number = max(epochs, default=0) if not known else 0
        epoch = epochs.get(number, 0)
    if number:
        identity = pb.BrokerIdentity(numeric_id=number, broker_epoch=epoch + _NUMBERS_AHEAD)
        yield keys.broker_identity(leader), values.encode(identity)
        if keys.NEXT_BROKER_NUMBER not in snapshot:
            yield keys.NEXT_BROKER_NUMBER, values.encode(pb.Counter(next=number + 1))
    # A WAL that is still there is told by its own id, whoever had it.
    yield keys.broker_ring(leader), snapshot.get(keys.broker_ring(former), _LOST_RING) if former else _LOST_RING


def _counters(snapshot: Mapping[str, bytes], inventory: Inventory, object_id: int) -> Iterator[tuple[str, bytes]]:
    producer_id = 0
    if keys.NEXT_PRODUCER_ID in snapshot:
        producer_id = values.decode(pb.Counter, snapshot[keys.NEXT_PRODUCER_ID]).next
    for path, following in (
        (keys.NEXT_PRODUCER_ID, producer_id + _NUMBERS_AHEAD),
        (keys.NEXT_OBJECT_ID, object_id + _NUMBERS_AHEAD),
        (keys.NEXT_COMMIT_NUMBER, inventory.number + 1),
    ):
        yield path, values.encode(pb.Counter(next=following))


def _module_versions(entries: Mapping[str, bytes], module_ids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Above every number that snapshot, bucket or a topic's config know of.

    A topic can have a module that was uploaded after the snapshot. Its id must never come to mean other bytes: until that topic is given
    another module it takes no records.
    """
    following: dict[str, int] = {}
    used = list(module_ids)
    for path, value in entries.items():
        if path in keys.NEXT_MODULE_VERSIONS:
            following[path] = values.decode(pb.Counter, value).next
        elif isinstance(keys.parse(path), keys.TopicConfigKey):
            used.append(values.decode(pb.TopicConfig, value).wasm_module_id)
    for module_id in used:
        name, _, number = module_id.rpartition("_v")
        if name and number.isdecimal():
            path = keys.next_module_version(name)
            following[path] = max(following.get(path, 0), int(number) + 1)
    for path, number_after in following.items():
        yield path, values.encode(pb.Counter(next=number_after + _VERSIONS_AHEAD))


def _topic(
    topic: TopicEntry, inventory: Inventory, known: Mapping[str, bytes], now_ms: int
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
        state = inventory.partition(topic.topic_id, index)
        yield from _partition(topic.name, index, state, known if is_known else {})


def _partition(name: str, index: int, state: PartitionState, known: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    path = keys.leader(name, index)
    entry = values.decode(pb.PartitionLeader, known[path]) if path in known else pb.PartitionLeader()
    entry.leader_epoch = max(entry.leader_epoch, *(segment.leader_epoch for segment in state.segments), 0)
    yield path, values.encode(entry)
    log_start = max(state.log_start, _offset(known, keys.log_start(name, index)))
    if log_start:
        yield keys.log_start(name, index), values.encode(pb.PartitionOffset(offset=log_start))


def _ceilings(
    entries: Mapping[str, bytes], inventory: Inventory, pictures: Sequence[CeilingPicture]
) -> Iterator[tuple[str, bytes]]:
    """Of every partition, those of topics without a record too: above every offset that can have been given out.

    The bucket hears of a ceiling before its offsets are given out. Where something else in it tells of more, it was
    behind, and is no bound.
    """
    for path, value in entries.items():
        key = keys.parse(path)
        if not isinstance(key, keys.TopicConfigKey):
            continue
        config = values.decode(pb.TopicConfig, value)
        topic_id = show_topic_id(TopicId(config.topic_id))
        for index in range(config.partitions):
            place = keys.ceiling(key.topic, index)
            known = max(inventory.partition(topic_id, index).end_offset, _offset(entries, place))
            near = max((picture.ceiling(topic_id, index) or 0 for picture in pictures), default=0)
            ceiling = near if near >= known and near else known + _OFFSETS_AHEAD
            yield place, values.encode(pb.PartitionOffset(offset=ceiling))


def _taken_over(entries: Mapping[str, bytes], leader: str) -> Iterator[tuple[str, bytes]]:
    """Every partition with `leader` at its head, in an epoch above all that can have been used."""
    for path, value in entries.items():
        if isinstance(keys.parse(path), keys.LeaderKey):
            entry = values.decode(pb.PartitionLeader, value)
            entry.broker_id = leader
            entry.leader_epoch += _EPOCHS_AHEAD
            entry.replicas[:] = entry.isr[:] = [leader]
            yield path, values.encode(entry)


def _segment(segment: Segment, inventory: Inventory, leader: str, now_ms: int) -> Iterable[tuple[str, bytes]]:
    object_id = object_id_of(segment.key)
    name = inventory.topics[segment.topic_id].name
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
